# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Stage "pytools": checkers that Debian does not package, in a Python
# environment.

build_pytools() {
	quietly "Python tools (${PYTOOLS[*]})" in_root "$1" sh -euc '
		python3 -m venv .
		bin/pip --cert /etc/ssl/certs/ca-certificates.crt --disable-pip-version-check \
			--no-cache-dir install "$@"' sh "${PYTOOLS[@]}"
}
