package launch

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/devinfo"
)

// classTree returns the files that programs read in /sys/class, with their content. A name that ends in a slash is an
// empty folder.
func classTree(devices []machine.Info) map[string]string {
	files := map[string]string{"infiniband/": "", "infiniband_verbs/": ""}
	for _, d := range devices {
		dir := "infiniband/" + d.Name + "/"
		put := func(name, format string, args ...any) { files[dir+name] = fmt.Sprintf(format, args...) + "\n" }
		put("node_type", "1: CA")
		put("node_guid", "%s", devinfo.GUIDString(d.GUID))
		put("sys_image_guid", "%s", devinfo.GUIDString(d.GUID))
		put("node_desc", "roce")
		if d.Interface != "" {
			files[dir+"device/net/"+d.Interface+"/"] = ""
		}
		put("ports/1/link_layer", "Ethernet")
		put("ports/1/state", "4: ACTIVE")
		put("ports/1/phys_state", "5: LinkUp")
		put("ports/1/pkeys/0", "0xffff")
		for i, a := range d.Addrs {
			put(fmt.Sprintf("ports/1/gids/%d", i), "%s", gidText(a))
			put(fmt.Sprintf("ports/1/gid_attrs/types/%d", i), "RoCE v2")
			if d.Interface != "" {
				put(fmt.Sprintf("ports/1/gid_attrs/ndevs/%d", i), "%s", d.Interface)
			}
		}
		files["infiniband_verbs/"+nodeName(d)+"/ibdev"] = d.Name + "\n"
	}
	return files
}

// nodes returns the names of the device nodes in /dev/infiniband.
func nodes(devices []machine.Info) []string {
	names := []string{"rdma_cm"}
	for _, d := range devices {
		names = append(names, nodeName(d))
	}
	return names
}

// nodeName returns the name of a device's node, which is in struct ibv_device: uverbs0 for roce0.
func nodeName(d machine.Info) string { return "uverbs" + strings.TrimPrefix(d.Name, "roce") }

// gidText returns the GID of an address as sysfs prints it.
func gidText(a netip.Addr) string {
	b := a.As16()
	return devinfo.GUIDString(binary.BigEndian.Uint64(b[:8])) + ":" + devinfo.GUIDString(binary.BigEndian.Uint64(b[8:]))
}
