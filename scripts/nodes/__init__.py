# SPDX-License-Identifier: GPL-2.0
"""Boots one or two guests with the emulated device between them, and works with them.

An own small runner: without KVM, virtme-ng needs 11 to 15 s to boot and virtiofsd or 9p to share
its root, of which the stock kernel lacks the latter; an initramfs is up in a third of that time.
"""
