/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Binding the driver to its device and unbinding it, which root may.
 */
#ifndef __SELFTEST_ULDMA_BIND_H
#define __SELFTEST_ULDMA_BIND_H

#include <stdio.h>

#include "uldma_kinds.h"

/**
 * struct pci_address - a device, as the files of its driver name it
 * @name: the device's name; empty until driver_find_device()
 */
struct pci_address {
	char name[64];
};

/* Finds the device of /dev/uldma0: 0 or a negated errno. */
static inline int driver_find_device(struct pci_address *address)
{
	char link[256];
	ssize_t len;

	len = readlink("/sys/class/misc/uldma0/device", link, sizeof(link) - 1);
	if (len < 0)
		return -errno;
	link[len] = 0;
	snprintf(address->name, sizeof(address->name), "%.60s",
		 strrchr(link, '/') + 1);
	return 0;
}

static inline int driver_bind(const struct pci_address *address)
{
	return put("/sys/bus/pci/drivers/uldma/bind", address->name);
}

static inline int driver_unbind(const struct pci_address *address)
{
	return put("/sys/bus/pci/drivers/uldma/unbind", address->name);
}

#endif /* __SELFTEST_ULDMA_BIND_H */
