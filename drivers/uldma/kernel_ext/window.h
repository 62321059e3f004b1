/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _ULDMA_WINDOW_H
#define _ULDMA_WINDOW_H

#include <linux/compiler_types.h>
#include <linux/types.h>

void uldma_window_copy_to(void __iomem *to, const void *from, size_t count);
void uldma_window_copy_from(void *to, const void __iomem *from, size_t count);

#endif
