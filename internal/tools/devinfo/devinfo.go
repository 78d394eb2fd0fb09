// Package devinfo describes a software NIC as ibv_devinfo describes a real one.
package devinfo

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/tools/dissect"
)

// Info describes a NIC. The JSON names are those of ibv_devinfo.
type Info struct {
	Name      string   `json:"hca_id"`
	GUID      string   `json:"node_guid"`
	MAC       string   `json:"mac"`
	State     string   `json:"state"` // PORT_ACTIVE or PORT_DOWN
	EtherMTU  int      `json:"ether_mtu"`
	MaxMTU    int      `json:"max_mtu"`
	ActiveMTU int      `json:"active_mtu"`
	PathMTU   int      `json:"path_mtu"` // of connections; 0: the interface's MTU is too small
	GIDs      []string `json:"gids"`     // by index

	Driver  string   `json:"driver"` // "raw"
	Mode    string   `json:"mode,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Problem string   `json:"problem,omitempty"` // why the NIC cannot be opened

	// These are the additional lines of ibv_devinfo -v, by their names. They are empty unless the NIC is open.
	FWVer  string         `json:"fw_ver,omitempty"`
	Limits map[string]any `json:"limits,omitempty"`
	Port   map[string]any `json:"port,omitempty"`

	device, port []row
}

// row is a line of ibv_devinfo -v.
type row struct {
	name  string
	value any
	text  string // as it is printed; "|" separates lines
}

// OfDevice describes an open NIC.
func OfDevice(name string, d *roce.Device) *Info {
	a := d.Query()
	i := newInfo(name, a.Link.MAC, a.Link.MTU, a.Up, a.GUID)
	for _, g := range d.GIDs() {
		i.GIDs = append(i.GIDs, g.String())
	}
	i.Driver, i.Mode, i.Notes, i.FWVer = a.Link.Driver, a.Link.Mode, a.Link.Notes, a.FWVer
	i.device = deviceRows(a)
	i.Limits = values(i.device)
	if p, err := d.QueryPort(1); err == nil {
		i.port = portRows(p)
		i.Port = values(i.port)
	}
	return i
}

// values returns the values of rows by their names.
func values(rows []row) map[string]any {
	all := make(map[string]any, len(rows))
	for _, r := range rows {
		all[r.name] = r.value
	}
	return all
}

func num(name string, n int) row { return row{name, n, fmt.Sprint(n)} }

func hex(name string, n uint64, digits int) row {
	return row{name, n, fmt.Sprintf("0x%0*x", digits, n)}
}

// named returns the row of a value of an enumeration: ibv_devinfo prints its name and its number.
func named[T ~int | ~uint8 | ~uint16 | ~uint32](name string, v T) row {
	return row{name, int(v), fmt.Sprintf("%v (%d)", v, v)}
}

// deviceRows returns the attributes of a device, in the order of ibv_devinfo.
func deviceRows(a roce.DeviceAttr) []row {
	return []row{
		hex("vendor_id", uint64(a.VendorID), 1),
		num("vendor_part_id", int(a.VendorPartID)),
		hex("hw_ver", uint64(a.HWVer), 1),
		hex("max_mr_size", a.MaxMRSize, 1),
		hex("page_size_cap", a.PageSizeCap, 1),
		num("max_qp", a.MaxQP),
		num("max_qp_wr", a.MaxQPWR),
		{"device_cap_flags", uint64(a.Caps), fmt.Sprintf("0x%08x|%v", uint64(a.Caps), a.Caps)},
		num("max_sge", a.MaxSGE),
		num("max_sge_rd", a.MaxSGERd),
		num("max_inline_data", a.MaxInline),
		num("max_cq", a.MaxCQ),
		num("max_cqe", a.MaxCQE),
		num("max_mr", a.MaxMR),
		num("max_mw", a.MaxMW),
		num("max_fast_reg_page_list_len", a.MaxFastReg),
		num("max_klm_list_size", a.MaxParts),
		num("max_umr_recursion_depth", a.MaxDepth),
		num("max_pd", a.MaxPD),
		num("max_qp_rd_atom", a.MaxRdAtom),
		num("max_res_rd_atom", a.MaxResRdAtom),
		num("max_qp_init_rd_atom", a.MaxInitRdAtom),
		named("atomic_cap", a.AtomicCap),
		num("max_mcast_grp", a.MaxMcastGrp),
		num("max_mcast_qp_attach", a.MaxMcastQPs),
		num("max_total_mcast_qp_attach", a.MaxMcastGrp*a.MaxMcastQPs),
		num("max_ah", a.MaxAH),
		num("max_srq", a.MaxSRQ),
		num("max_srq_wr", a.MaxSRQWR),
		num("max_srq_sge", a.MaxSRQSGE),
		num("max_pkeys", a.MaxPKeys),
		num("local_ca_ack_delay", int(a.LocalCAAckDelay)),
		num("num_comp_vectors", a.Shards),
	}
}

// portRows returns the attributes of a port that ibv_devinfo prints only with -v.
func portRows(p roce.PortAttr) []row {
	return []row{
		hex("max_msg_sz", uint64(p.MaxMsgSize), 8),
		hex("port_cap_flags", uint64(p.Caps), 8),
		num("max_vl_num", p.MaxVLs),
		hex("bad_pkey_cntr", p.BadPKeys, 1),
		hex("qkey_viol_cntr", p.BadQKeys, 1),
		num("pkey_tbl_len", p.PKeyTableLen),
		num("gid_tbl_len", p.GIDTableLen),
		named("active_width", p.ActiveWidth),
		named("active_speed", p.ActiveSpeed),
		named("phys_state", p.PhysState),
	}
}

// OfInterface opens a NIC on a network interface and describes it. If that fails, for instance without the privilege,
// OfInterface describes the interface, and Problem has the reason.
func OfInterface(name string, c roce.InterfaceConfig) (*Info, error) {
	d, err := roce.OpenInterface(name, c)
	if err == nil {
		defer d.Close()
		return OfDevice(name, d), nil
	}
	iface, ierr := net.InterfaceByName(name)
	if ierr != nil {
		return nil, fmt.Errorf("interface %s: %w", name, ierr)
	}
	mac := frame.MAC{}
	copy(mac[:], iface.HardwareAddr)
	i := newInfo(name, mac, iface.MTU, iface.Flags&net.FlagRunning != 0, guidOf(mac))
	i.Driver, i.Problem = c.Driver, err.Error()
	for _, a := range addrs(name) {
		i.GIDs = append(i.GIDs, bth.GIDFrom(a).String())
	}
	return i, nil
}

// addrs returns the addresses of an interface in the order of the GID table, none if they are not
// known.
func addrs(name string) (all []netip.Addr) {
	if h, err := hostnet.Open(name); err == nil {
		defer h.Close()
		all, _ = h.Addrs()
	}
	return all
}

func newInfo(name string, mac frame.MAC, mtu int, up bool, guid uint64) *Info {
	path, _ := bth.PathMTU(mtu)
	i := &Info{Name: name, GUID: GUIDString(guid), MAC: mac.String(), State: "PORT_DOWN", EtherMTU: mtu,
		MaxMTU: roce.MTU4096.Bytes(), ActiveMTU: bth.ActiveMTU(mtu).Bytes(), PathMTU: path.Bytes()}
	if up {
		i.State = "PORT_ACTIVE"
	}
	return i
}

// guidOf returns the node GUID that a device derives from its MAC address.
func guidOf(mac frame.MAC) uint64 {
	g := frame.DefaultGID(mac)
	return binary.BigEndian.Uint64(g[8:])
}

// GUIDString returns a GUID as ibv_devinfo prints it.
func GUIDString(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

// emptySlot is the GID of an address that was removed.
const emptySlot = "::"

// stateCodes are the numbers of states that ibv_devinfo prints in brackets.
var stateCodes = map[string]int{"PORT_DOWN": 1, "PORT_ACTIVE": 4}

// WriteText prints the description in the layout of ibv_devinfo; verbose adds the
// limits.
func (i *Info) WriteText(w io.Writer, verbose bool) error {
	p := printer{bufio.NewWriter(w)}
	p.line(0, "hca_id", i.Name)
	p.line(1, "transport", "InfiniBand (0)")
	p.optional(1, "fw_ver", i.FWVer)
	p.line(1, "node_guid", i.GUID)
	p.line(1, "sys_image_guid", i.GUID)
	p.line(1, "driver", i.Driver)
	p.optional(1, "mode", i.Mode)
	for _, n := range i.Notes {
		p.line(1, "note", n)
	}
	p.optional(1, "cannot open", i.Problem)
	if verbose {
		p.rows(1, i.device)
	}
	p.line(1, "phys_port_cnt", 1)
	p.line(2, "port", 1)
	p.line(3, "state", fmt.Sprintf("%s (%d)", i.State, stateCodes[i.State]))
	for _, m := range []struct {
		name  string
		bytes int
	}{{"max_mtu", i.MaxMTU}, {"active_mtu", i.ActiveMTU}, {"path_mtu", i.PathMTU}} {
		p.line(3, m.name, fmt.Sprintf("%d (%d)", m.bytes, dissect.MTUOf(m.bytes)))
	}
	p.line(3, "sm_lid", 0)
	p.line(3, "port_lid", 0)
	p.line(3, "port_lmc", "0x00")
	p.line(3, "link_layer", "Ethernet")
	if verbose {
		p.rows(3, i.port)
	}
	p.line(3, "mac", i.MAC)
	p.line(3, "ether_mtu", i.EtherMTU)
	for n, g := range i.GIDs {
		if g != emptySlot {
			p.line(3, fmt.Sprintf("GID[%3d]", n), g+", RoCE v2")
		}
	}
	return p.Flush()
}

// printer prints lines of a name and a value at two columns, indented by tabs. It keeps the first error.
type printer struct{ *bufio.Writer }

func (p printer) rows(indent int, rows []row) {
	for _, r := range rows {
		name := r.name + ":"
		for text := range strings.SplitSeq(r.text, "|") {
			p.print(indent, name, text)
			name = ""
		}
	}
}

func (p printer) line(indent int, name string, value any) {
	p.print(indent, name+":", fmt.Sprint(value))
}

// optional prints a line unless its value is empty.
func (p printer) optional(indent int, name, value string) {
	if value != "" {
		p.line(indent, name, value)
	}
}

func (p printer) print(indent int, name, value string) {
	const valueColumn = 40
	width := max(valueColumn-8*indent, len(name)+1)
	fmt.Fprintf(p, "%s%-*s%s\n", "\t\t\t"[:indent], width, name, value)
}
