package xdp

import (
	"errors"
	"fmt"
	"os"
)

// errLostFrames says that the driver grants zero copy and may then lose every frame that it sends.
var errLostFrames = errors.New("zero copy of virtio_net as a module is not safe")

const noteLostFrames = "no zero copy: virtio_net as a module can lose every frame that is sent with it; Config.ZeroCopy (--zero-copy on) allows it nevertheless"

// copies reports whether the sockets are opened in copy mode.
func (c *card) copies() bool {
	return c.cfg.ZeroCopy == ZeroCopyOff || c.cfg.Generic || c.added || c.lack.zeroCopy
}

// losesFrames reports whether zero copy is not safe with the driver of the interface. virtio_net puts a header of zeros
// before each frame. With zero copy this header is a variable of the driver (xsk_hdr), and Linux 6.13 to 7.3 compute its
// physical address in a way that is wrong for the variables of a module. The card reads other memory there, in each boot
// at another place. If it does not find zeros, the host drops the frame, and all others. Nothing in the guest shows it.
// No kernel is known that does better, so there is no check of the version.
func (c *card) losesFrames() bool {
	return c.cfg.ZeroCopy == ZeroCopyAuto && headerOfModule(c.driver, "/sys/module")
}

// headerOfModule reports whether the driver is, or may be, virtio_net as a module. modules is the kernel's folder of modules.
// It has a folder for virtio_net in any case, because of its parameters, but a state only of a module.
func headerOfModule(driver, modules string) bool {
	if driver != "virtio_net" && driver != "" {
		return false
	}
	_, known := os.Stat(modules + "/virtio_net")
	_, state := os.Stat(modules + "/virtio_net/initstate")
	return known != nil || !errors.Is(state, os.ErrNotExist)
}

// countAdded counts the receive queues that the driver has added for the program. virtio_net adds one for each
// processor, if the interface has that many unused queues, and the host sends packets to the added queues as
// well. The driver removes them when the program is detached. If a socket uses an added queue with zero copy at
// that moment, Linux 7.3 does not release the UMEM ("Failed to disable zero-copy!") and crashes when the queue
// is used again; a process that is killed cannot prevent that. So such an interface gets no zero copy.
func (c *card) countAdded(most int) {
	now := min(most, c.channels(c.ctl, c.info.Interface).RX)
	if now <= c.queues {
		return
	}
	note := fmt.Sprintf("no zero copy: for the XDP program the driver has added %d receive queues, on which that is not safe; it adds none when `ethtool -L` has set the most queues", now-c.queues)
	if c.losesFrames() {
		note += ", and then needs --zero-copy on"
	}
	c.info.Notes = append(c.info.Notes, note)
	c.queues, c.added = now, true
}
