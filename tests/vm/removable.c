// Drivers of adapters let the kernel take a device from programs that have it open, and say so by an operation. The soft
// devices have none, so that `rdma link delete` waits until the last program has closed them. This adds the operation to
// the devices that are there and that come: nothing is left to do in it, as siw maps nothing but memory of its own. Not for
// rxe, which looks at a program's context when its last mapping goes, after the kernel has freed that.
#include <linux/module.h>
#include <rdma/ib_verbs.h>

static void disassociate(struct ib_ucontext *context) {}

static int add(struct ib_device *device)
{
	static const struct ib_device_ops ops = { .disassociate_ucontext = disassociate };

	ib_set_device_ops(device, &ops);
	return 0;
}

static struct ib_client client = { .name = "removable", .add = add };

static int __init begin(void)
{
	return ib_register_client(&client);
}
module_init(begin);

// Without an exit it stays loaded, and so do the operations that devices point to.
MODULE_DESCRIPTION("Soft RDMA devices that can be removed while they are open");
MODULE_LICENSE("GPL");
