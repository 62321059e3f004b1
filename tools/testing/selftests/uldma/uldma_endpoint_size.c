// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of the calls of endpoints: sizes, flags, reserved fields and bad
 * pointers.
 */
#include "uldma_calls.h"

/* No object has this handle. */
#define NO_HANDLE 0x7fffffff

enum call_id {
	CREATE,
	CONNECT,
	DESTROY,
	WAIT,
};

static struct uldma_call calls[] = {
	[CREATE] = {
		.cmd = ULDMA_IOC_ENDPOINT_CREATE,
		.known_flags = ULDMA_ENDPOINT_STREAM,
		.args.endpoint_create = {
			SIZED(endpoint_create),
			.max_message = 1,
		},
		RESERVED(endpoint_create),
	},
	[CONNECT] = {
		.cmd = ULDMA_IOC_ENDPOINT_CONNECT,
		.args.endpoint_connect = {
			SIZED(endpoint_connect),
			.handle = NO_HANDLE,
		},
		.result = -ENOENT,
		RESERVED(endpoint_connect),
	},
	[DESTROY] = {
		.cmd = ULDMA_IOC_ENDPOINT_DESTROY,
		.args.handle = { SIZED(handle), .handle = NO_HANDLE },
		.result = -ENOENT,
	},
	[WAIT] = {
		.cmd = ULDMA_IOC_ENDPOINT_WAIT,
		.asks = true,
		.args.endpoint_wait = {
			SIZED(endpoint_wait),
			.handle = NO_HANDLE,
		},
		.result = -ENOENT,
		RESERVED(endpoint_wait),
	},
};

FIXTURE_VARIANT_ADD(call, create) { &calls[CREATE] };
FIXTURE_VARIANT_ADD(call, connect) { &calls[CONNECT] };
FIXTURE_VARIANT_ADD(call, destroy) { &calls[DESTROY] };
FIXTURE_VARIANT_ADD(call, wait) { &calls[WAIT] };

FIXTURE_VARIANT_ADD(flags, create) { &calls[CREATE] };
FIXTURE_VARIANT_ADD(flags, connect) { &calls[CONNECT] };
FIXTURE_VARIANT_ADD(flags, wait) { &calls[WAIT] };

FIXTURE_VARIANT_ADD(reserved, create) { &calls[CREATE] };
FIXTURE_VARIANT_ADD(reserved, connect) { &calls[CONNECT] };
FIXTURE_VARIANT_ADD(reserved, wait) { &calls[WAIT] };

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
