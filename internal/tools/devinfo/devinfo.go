// Package devinfo describes a software NIC as ibv_devinfo describes a real one.
package devinfo

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
)

// Info is what there is to know. The JSON names are those of ibv_devinfo.
type Info struct {
	Name      string   `json:"hca_id"`
	GUID      string   `json:"node_guid"`
	MAC       string   `json:"mac"`
	State     string   `json:"state"` // PORT_ACTIVE or PORT_DOWN
	EtherMTU  int      `json:"ether_mtu"`
	MaxMTU    int      `json:"max_mtu"`
	ActiveMTU int      `json:"active_mtu"`
	PathMTU   int      `json:"path_mtu"` // what connections are offered; 0: too small for any
	GIDs      []string `json:"gids"`     // by index

	Driver  string   `json:"driver"` // "raw"
	Mode    string   `json:"mode,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Problem string   `json:"problem,omitempty"` // why the NIC cannot be opened

	// Of an opened NIC: what ibv_devinfo -v prints besides, by its names.
	FWVer  string         `json:"fw_ver,omitempty"`
	Limits map[string]any `json:"limits,omitempty"`
	Port   map[string]any `json:"port,omitempty"`

	device, port []row
}

// row is a line of ibv_devinfo -v.
type row struct {
	name  string
	value any
	text  string // as it is printed, with a bar between lines
}

// OfDevice describes an open NIC.
func OfDevice(name string, d *roce.Device) *Info {
	a := d.Query()
	i := newInfo(name, a.Link.MAC, a.Link.MTU, a.Up, a.GUID)
	for _, g := range d.GIDs() {
		i.GIDs = append(i.GIDs, gidString(g))
	}
	i.Driver, i.Mode, i.Notes, i.FWVer = a.Link.Driver, a.Link.Mode, a.Link.Notes, a.FWVer
	i.device, i.Limits = deviceRows(a), map[string]any{}
	for _, r := range i.device {
		i.Limits[r.name] = r.value
	}
	if p, err := d.QueryPort(1); err == nil {
		i.port, i.Port = portRows(p), map[string]any{}
		for _, r := range i.port {
			i.Port[r.name] = r.value
		}
	}
	return i
}

// deviceRows are the attributes of a device, in the order of ibv_devinfo.
func deviceRows(a roce.DeviceAttr) []row {
	num := func(name string, n int) row { return row{name, n, fmt.Sprint(n)} }
	hex := func(name string, n uint64) row { return row{name, n, fmt.Sprintf("%#x", n)} }
	return []row{
		hex("vendor_id", uint64(a.VendorID)),
		num("vendor_part_id", int(a.VendorPartID)),
		hex("hw_ver", uint64(a.HWVer)),
		hex("max_mr_size", a.MaxMRSize),
		hex("page_size_cap", a.PageSizeCap),
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
		{"atomic_cap", int(a.AtomicCap), fmt.Sprintf("%v (%d)", a.AtomicCap, a.AtomicCap)},
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

// portRows are those of a port that are not printed anyway.
func portRows(p roce.PortAttr) []row {
	num := func(name string, n int) row { return row{name, n, fmt.Sprint(n)} }
	hex := func(name string, n uint64, digits int) row { return row{name, n, fmt.Sprintf("0x%0*x", digits, n)} }
	return []row{
		hex("max_msg_sz", uint64(p.MaxMsgSize), 8),
		hex("port_cap_flags", uint64(p.Caps), 8),
		num("max_vl_num", p.MaxVLs),
		hex("bad_pkey_cntr", p.BadPKeys, 1),
		hex("qkey_viol_cntr", p.BadQKeys, 1),
		num("pkey_tbl_len", p.PKeyTableLen),
		num("gid_tbl_len", p.GIDTableLen),
		{"active_width", int(p.ActiveWidth), fmt.Sprintf("%v (%d)", p.ActiveWidth, p.ActiveWidth)},
		{"active_speed", int(p.ActiveSpeed), fmt.Sprintf("%v (%d)", p.ActiveSpeed, p.ActiveSpeed)},
		{"phys_state", int(p.PhysState), fmt.Sprintf("%v (%d)", p.PhysState, p.PhysState)},
	}
}

// OfInterface opens a NIC on a network interface and describes it. When it
// cannot be opened, for want of a privilege for instance, it describes what it
// would be, and Problem says why it is not.
func OfInterface(name, driver string) (*Info, error) {
	d, err := roce.OpenInterface(name, roce.InterfaceConfig{Driver: driver})
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
	i.Driver, i.Problem = driver, err.Error()
	for _, a := range addrs(name) {
		i.GIDs = append(i.GIDs, gidString(bth.GIDFrom(a)))
	}
	return i, nil
}

// addrs are the addresses of an interface in the order of the GID table, if the
// host tells.
func addrs(name string) []netip.Addr {
	h, err := hostnet.Open(name)
	if err != nil {
		return nil
	}
	defer h.Close()
	a, _ := h.Addrs()
	return a
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

// guidOf is the node GUID a device makes of its MAC address.
func guidOf(mac frame.MAC) (guid uint64) {
	g := frame.DefaultGID(mac)
	for _, b := range g[8:] {
		guid = guid<<8 | uint64(b)
	}
	return guid
}

// GUIDString returns a GUID as ibv_devinfo prints it.
func GUIDString(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

// gidString prints a GID as ibv_devinfo -v does: IPv4 addresses mapped, others
// as IPv6 addresses.
func gidString(g roce.GID) string { return g.String() }

// emptySlot is the GID of an address that was removed.
const emptySlot = "::"

// Values ibv_devinfo prints in brackets.
var (
	stateCodes = map[string]int{"PORT_DOWN": 1, "PORT_ACTIVE": 4}
	mtuCodes   = map[int]int{256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
)

// WriteText prints the description in the layout of ibv_devinfo; verbose adds the
// limits.
func (i *Info) WriteText(w io.Writer, verbose bool) error {
	p := &printer{w: w}
	p.line(0, "hca_id", "%s", i.Name)
	p.line(1, "transport", "InfiniBand (0)")
	if i.FWVer != "" {
		p.line(1, "fw_ver", "%s", i.FWVer)
	}
	p.line(1, "node_guid", "%s", i.GUID)
	p.line(1, "sys_image_guid", "%s", i.GUID)
	p.line(1, "driver", "%s", i.Driver)
	if i.Mode != "" {
		p.line(1, "mode", "%s", i.Mode)
	}
	for _, n := range i.Notes {
		p.line(1, "note", "%s", n)
	}
	if i.Problem != "" {
		p.line(1, "cannot open", "%s", i.Problem)
	}
	if verbose {
		p.rows(1, i.device)
	}
	p.line(1, "phys_port_cnt", "1")
	p.line(2, "port", "1")
	p.line(3, "state", "%s (%d)", i.State, stateCodes[i.State])
	p.line(3, "max_mtu", "%d (%d)", i.MaxMTU, mtuCodes[i.MaxMTU])
	p.line(3, "active_mtu", "%d (%d)", i.ActiveMTU, mtuCodes[i.ActiveMTU])
	p.line(3, "path_mtu", "%d (%d)", i.PathMTU, mtuCodes[i.PathMTU])
	p.line(3, "sm_lid", "0")
	p.line(3, "port_lid", "0")
	p.line(3, "port_lmc", "0x00")
	p.line(3, "link_layer", "Ethernet")
	if verbose {
		p.rows(3, i.port)
	}
	p.line(3, "mac", "%s", i.MAC)
	p.line(3, "ether_mtu", "%d", i.EtherMTU)
	for n, g := range i.GIDs {
		if g == emptySlot {
			continue
		}
		p.line(3, fmt.Sprintf("GID[%3d]", n), "%s, RoCE v2", g)
	}
	return p.err
}

// printer prints lines of a name and a value at two columns, indented by tabs.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) rows(indent int, rows []row) {
	for _, r := range rows {
		name := r.name + ":"
		for text := range strings.SplitSeq(r.text, "|") {
			p.print(indent, name, text)
			name = ""
		}
	}
}

func (p *printer) line(indent int, name, format string, args ...any) {
	p.print(indent, name+":", fmt.Sprintf(format, args...))
}

func (p *printer) print(indent int, name, value string) {
	if p.err != nil {
		return
	}
	const valueColumn = 40
	width := max(valueColumn-8*indent, len(name)+1)
	_, p.err = fmt.Fprintf(p.w, "%s%-*s%s\n", "\t\t\t"[:indent], width, name, value)
}
