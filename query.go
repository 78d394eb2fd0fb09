package roce

import (
	"cmp"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// DeviceAttr has the attributes of ibv_query_device_ex (struct
// ibv_device_attr_ex). Fields of features that the device does not offer are
// 0.
type DeviceAttr struct {
	FWVer        string // version of this module
	GUID         uint64 // node_guid and sys_image_guid
	VendorID     uint32 // 0xFFFFFF, as rxe: no vendor
	VendorPartID uint32
	HWVer        uint32
	PhysPorts    int // always 1; ports are numbered from 1
	Shards       int // num_comp_vectors; see CQConfig.Shard
	Caps         DeviceCaps
	AtomicCap    AtomicCap
	CalcCap      CalcCap

	MaxMRSize   uint64
	PageSizeCap uint64
	MaxQP       int
	MaxQPWR     int
	MaxSGE      int
	MaxSGERd    int
	MaxInline   int // bytes of inline data
	MaxCQ       int
	MaxCQE      int
	MaxMR       int
	MaxMW       int
	MaxFastReg  int // pieces of a fast registration (max_fast_reg_page_list_len)
	MaxParts    int // parts of an indirect region (max_klm_list_size)
	MaxDepth    int // depth of nested indirect regions (max_umr_recursion_depth)

	MaxInlineParts int // parts in a work request (max_send_wqe_inline_klms); see IndirectMR.FillWR
	MaxStrideDims  int // dimensions of Part.Stride (max_umr_stride_dimension)
	Masked         MaskedAttr

	MaxPD       int
	MaxAH       int
	MaxPKeys    int
	MaxMcastGrp int // multicast groups
	MaxMcastQPs int // queue pairs attached to one group (max_mcast_qp_attach)
	MaxSRQ      int
	MaxSRQWR    int
	MaxSRQSGE   int

	MaxRdAtom      int // READs and atomics a peer may have outstanding on a queue pair (max_qp_rd_atom)
	MaxInitRdAtom  int // that a queue pair may have outstanding at its peer
	MaxResRdAtom   int // that all peers together may have outstanding
	MaxDCReqRdAtom int // MaxInitRdAtom of an initiator of the DC transport (max_dc_req_rd_atom)
	MaxDCResRdAtom int // MaxRdAtom of a DC target, for each initiator (max_dc_res_rd_atom)

	LocalCAAckDelay uint8 // time to an answer, a code of 4.096 µs·2^n

	// Attributes of the port, for programs that need no others; see
	// [Device.QueryPort].
	Link      link.Info
	Up        bool
	ActiveMTU MTU // largest payload a packet may have
	PathMTU   MTU // offered in connection requests
}

// MaskedAttr has the capabilities of masked atomics (struct ibv_exp_ext_atomics_params). Results are in the byte
// order of the requester's host, as for all atomics here, unless the queue pair has BigEndianReply.
type MaskedAttr struct {
	ArgSizes     uint64 // a bit for each size of operands, all powers of 2 (atomic_arg_sizes)
	MaxFieldLog  int    // the largest field of a MaskedFetchAdd has 2^n bytes (max_fa_bit_boundary)
	MaxInlineLog int    // values and masks in a work request have 2^n bytes (log_max_atomic_inline)

	BigEndianReply bool // queue pairs may have BigEndianReply
}

// unlimited is the value of attributes that only memory limits.
const unlimited = math.MaxInt32

// vendorNone is the vendor ID of rxe, which means no vendor.
const vendorNone = 0xFFFFFF

// Query returns the device's attributes (ibv_query_device,
// ibv_query_device_ex).
func (d *Device) Query() DeviceAttr {
	path, _ := bth.PathMTU(d.nic.MTU())
	regions, windows := d.mem.Limits()
	return DeviceAttr{
		FWVer: moduleVersion(), GUID: d.guid, VendorID: vendorNone, PhysPorts: 1, Shards: d.nic.Shards(),
		Caps: CapBadPKeyCntr | CapBadQKeyCntr | CapAutoPathMig | CapUDAVPortEnforce | CapCurrQPStateMod | CapPortActiveEvent |
			CapSysImageGUID | CapRCRNRNakGen | CapSRQResize | CapXRC | CapMemWindow | CapMWType2B |
			CapMemMgtExtensions | CapFlushGlobal | CapFlushPersist | CapAtomicWrite | CapCrossChannel | CapDC,
		// On words that are aligned in memory, atomics are those of the CPU. On
		// other words they are atomic with those of the device only.
		AtomicCap: AtomicGlob, CalcCap: CalcCap{Types: []CalcType{CalcInt, CalcUint, CalcFloat}, Sizes: []CalcSize{Calc64Bit},
			IntOps: qp.CalcOps(CalcInt), UintOps: qp.CalcOps(CalcUint), FloatOps: qp.CalcOps(CalcFloat)},
		MaxMRSize: mr.MaxLength, PageSizeCap: 0xFFFFF000, // irrelevant: memory is not pinned
		MaxQP: nic.MaxQP, MaxQPWR: qp.MaxWR, MaxSGE: qp.MaxSGE, MaxSGERd: qp.MaxSGE, MaxInline: qp.MaxInline,
		MaxCQ: unlimited, MaxCQE: cq.MaxEntries,
		MaxMR: regions, MaxMW: windows, MaxFastReg: mr.MaxPieces, MaxParts: mr.MaxPieces, MaxDepth: mr.MaxDepth,
		MaxInlineParts: mr.MaxPieces, MaxStrideDims: 1,
		Masked: MaskedAttr{ArgSizes: 1 | 2 | 4 | 8 | 16 | mr.MaxOperand, MaxFieldLog: 3, MaxInlineLog: 7, BigEndianReply: true}, // four numbers of 32 bytes
		MaxPD:  unlimited, MaxAH: unlimited, MaxPKeys: 1,
		MaxMcastGrp: MaxMulticastGroups, MaxMcastQPs: MaxMulticastQPs,
		MaxSRQ: maxSRQ, MaxSRQWR: qp.MaxSRQWR, MaxSRQSGE: qp.MaxSRQSGE,
		MaxRdAtom: qp.MaxRdAtomic, MaxInitRdAtom: qp.MaxRdAtomic, MaxResRdAtom: qp.MaxRdAtomic * nic.MaxQP,
		MaxDCReqRdAtom: qp.MaxRdAtomic, MaxDCResRdAtom: qp.MaxRdAtomic,
		LocalCAAckDelay: cm.DefaultAckDelay,
		Link:            d.nic.LinkInfo(), Up: d.nic.PortUp(), ActiveMTU: bth.ActiveMTU(d.nic.MTU()), PathMTU: path,
	}
}

// moduleVersion is the version of this module in the running program.
var moduleVersion = sync.OnceValue(func() string {
	const path, devel = "github.com/goroce/roce", "(devel)"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	for _, m := range append(info.Deps, &info.Main) {
		switch {
		case m.Path != path:
		case m.Replace != nil: // replaced by a directory, which has no version
			return cmp.Or(m.Replace.Version, devel)
		case m.Version != "":
			return m.Version
		}
	}
	return devel
})

// PortAttr has the attributes of ibv_query_port (struct ibv_port_attr). It
// leaves out attributes of InfiniBand only (LIDs, subnet manager), which are
// 0 on RoCE.
type PortAttr struct {
	State        PortState
	PhysState    PhysState
	LinkLayer    LinkLayer
	MaxMTU       MTU
	ActiveMTU    MTU // from the MTU of the interface
	ActiveWidth  LinkWidth
	ActiveSpeed  LinkSpeed // of one lane
	Caps         PortCaps
	GIDTableLen  int
	PKeyTableLen int
	MaxMsgSize   uint32
	MaxVLs       int
	BadPKeys     uint64 // packets with a P_Key that is not in the table
	BadQKeys     uint64 // datagrams with another Q_Key than that of their queue pair
	GRHRequired  bool   // always: address vectors name GIDs
}

// checkPort returns an error for a port that does not exist.
func checkPort(op string, port int) error {
	if port != 1 {
		return fail(op, syscall.EINVAL, "port %d does not exist, only 1", port)
	}
	return nil
}

// QueryPort returns the attributes of a port (ibv_query_port). The only port
// is 1; it fails with EINVAL for others.
func (d *Device) QueryPort(port int) (PortAttr, error) {
	if err := checkPort("query port", port); err != nil {
		return PortAttr{}, err
	}
	a := PortAttr{State: PortDown, PhysState: PhysDisabled, LinkLayer: LinkLayerEthernet, MaxMTU: bth.MTU4096,
		ActiveMTU: bth.ActiveMTU(d.nic.MTU()), Caps: PortCMSupport, GIDTableLen: route.MaxGIDs, PKeyTableLen: 1,
		MaxMsgSize: qp.MaxMessage, MaxVLs: 1, GRHRequired: true}
	a.ActiveWidth, a.ActiveSpeed = widthAndSpeed(d.info.Speed)
	if d.nic.PortUp() {
		a.State, a.PhysState = PortActive, PhysLinkUp
	}
	c := d.Counters()
	a.BadPKeys, a.BadQKeys = c.Drops.PKey, c.QKeyViolation
	return a, nil
}

// GIDEntry is an entry of the GID table (struct ibv_gid_entry).
type GIDEntry struct {
	GID     GID
	Index   int
	Port    int
	Type    GIDType
	IfIndex int // of the network interface; 0: unknown
}

// QueryGID returns the GID at an index of a port's table (ibv_query_gid). The
// GID of an empty slot is zero. It fails with EINVAL if the port or the index
// does not exist.
func (d *Device) QueryGID(port, index int) (GID, error) {
	if err := checkPort("query gid", port); err != nil {
		return GID{}, err
	}
	if index < 0 || index >= route.MaxGIDs {
		return GID{}, fail("query gid", syscall.EINVAL, "index %d, the table has %d entries", index, route.MaxGIDs)
	}
	g, _ := d.nic.Routes().GIDs().At(index)
	return g, nil
}

// QueryGIDEx is QueryGID with all fields of the entry (ibv_query_gid_ex). It
// fails with ENODATA for an empty slot.
func (d *Device) QueryGIDEx(port, index int) (GIDEntry, error) {
	g, err := d.QueryGID(port, index)
	if err == nil && g.IsZero() {
		err = fail("query gid", errno.ENODATA, "there is no address at GID index %d", index)
	}
	if err != nil {
		return GIDEntry{}, err
	}
	return d.gidEntry(index, g), nil
}

// QueryGIDTable lists the entries that are not empty (ibv_query_gid_table).
func (d *Device) QueryGIDTable() (entries []GIDEntry) {
	for i, g := range d.nic.Routes().GIDs().Slots() {
		if !g.IsZero() {
			entries = append(entries, d.gidEntry(i, g))
		}
	}
	return entries
}

func (d *Device) gidEntry(index int, g GID) GIDEntry {
	return GIDEntry{GID: g, Index: index, Port: 1, Type: GIDTypeRoCEv2, IfIndex: d.info.Index}
}

// DefaultPKey is the only P_Key in use on RoCE.
const DefaultPKey = bth.DefaultPKey

// QueryPKey returns the P_Key at an index of a port's table (ibv_query_pkey).
// The only P_Key is 0xFFFF at index 0. It fails with ENOENT for another
// index, and with EINVAL for another port.
func (d *Device) QueryPKey(port, index int) (PKey, error) {
	if err := checkPort("query pkey", port); err != nil {
		return 0, err
	}
	if index != 0 {
		return 0, fail("query pkey", syscall.ENOENT, "index %d, the table has one entry", index)
	}
	return bth.DefaultPKey, nil
}

// PKeyIndex finds a P_Key in a port's table (ibv_get_pkey_index). It fails
// with ENOENT if the table does not have it.
func (d *Device) PKeyIndex(port int, key PKey) (int, error) {
	if err := checkPort("find pkey", port); err != nil {
		return 0, err
	}
	if key != bth.DefaultPKey {
		return 0, fail("find pkey", syscall.ENOENT, "%v is not in the table", key)
	}
	return 0, nil
}

// DeviceCaps has the capabilities of a device, with the bits of enum
// ibv_device_cap_flags and of device_cap_flags_ex.
type DeviceCaps uint64

const (
	CapResizeMaxWR      DeviceCaps = 1 << 0  // Modify changes queue sizes
	CapBadPKeyCntr      DeviceCaps = 1 << 1  // PortAttr.BadPKeys counts
	CapBadQKeyCntr      DeviceCaps = 1 << 2  // PortAttr.BadQKeys counts
	CapRawMulti         DeviceCaps = 1 << 3  // raw packet multicast
	CapAutoPathMig      DeviceCaps = 1 << 4  // automatic path migration
	CapChangePhyPort    DeviceCaps = 1 << 5  // SQD to SQD changes the port
	CapUDAVPortEnforce  DeviceCaps = 1 << 6  // a UD queue pair uses address handles of its port only
	CapCurrQPStateMod   DeviceCaps = 1 << 7  // Modify checks CurState
	CapShutdownPort     DeviceCaps = 1 << 8  // ports can be shut down
	CapInitType         DeviceCaps = 1 << 9  // the port tells a subnet manager how to initialize it
	CapPortActiveEvent  DeviceCaps = 1 << 10 // EventPortActive is raised
	CapSysImageGUID     DeviceCaps = 1 << 11 // the system image GUID is valid
	CapRCRNRNakGen      DeviceCaps = 1 << 12 // the responder sends RNR NAKs
	CapSRQResize        DeviceCaps = 1 << 13 // shared receive queues can be resized
	CapNNotifyCQ        DeviceCaps = 1 << 14 // notification after n completions
	CapMemWindow        DeviceCaps = 1 << 17 // memory windows
	CapUDIPCsum         DeviceCaps = 1 << 18 // checksum offload on UD
	CapXRC              DeviceCaps = 1 << 20 // extended reliable connections
	CapMemMgtExtensions DeviceCaps = 1 << 21 // fast registration, LOCAL_INV, SEND_INV
	CapMWType2A         DeviceCaps = 1 << 23
	CapMWType2B         DeviceCaps = 1 << 24
	CapRCIPCsum         DeviceCaps = 1 << 25
	CapRawIPCsum        DeviceCaps = 1 << 26
	CapCrossChannel     DeviceCaps = 1 << 27 // cross-channel communication; the kernel's bit
	CapFlowSteering     DeviceCaps = 1 << 29
	CapRawScatterFCS    DeviceCaps = 1 << 34
	CapFlushGlobal      DeviceCaps = 1 << 38 // FLUSH to global visibility
	CapFlushPersist     DeviceCaps = 1 << 39 // FLUSH to persistence
	CapAtomicWrite      DeviceCaps = 1 << 40 // ATOMIC WRITE

	// CapDC: dynamically connected transport (IBV_EXP_DEVICE_DC_TRANSPORT), between ends of this stack
	// only. No enum of the verbs has this bit.
	CapDC DeviceCaps = 1 << 63
)

var deviceCapNames = []flagName[DeviceCaps]{
	{CapResizeMaxWR, "RESIZE_MAX_WR"}, {CapBadPKeyCntr, "BAD_PKEY_CNTR"}, {CapBadQKeyCntr, "BAD_QKEY_CNTR"}, {CapRawMulti, "RAW_MULTI"},
	{CapAutoPathMig, "AUTO_PATH_MIG"}, {CapChangePhyPort, "CHANGE_PHY_PORT"}, {CapUDAVPortEnforce, "UD_AV_PORT_ENFORCE"},
	{CapCurrQPStateMod, "CURR_QP_STATE_MOD"}, {CapShutdownPort, "SHUTDOWN_PORT"}, {CapInitType, "INIT_TYPE"},
	{CapPortActiveEvent, "PORT_ACTIVE_EVENT"}, {CapSysImageGUID, "SYS_IMAGE_GUID"}, {CapRCRNRNakGen, "RC_RNR_NAK_GEN"},
	{CapSRQResize, "SRQ_RESIZE"}, {CapNNotifyCQ, "N_NOTIFY_CQ"}, {CapMemWindow, "MEM_WINDOW"}, {CapUDIPCsum, "UD_IP_CSUM"}, {CapXRC, "XRC"},
	{CapMemMgtExtensions, "MEM_MGT_EXTENSIONS"}, {CapMWType2A, "MEM_WINDOW_TYPE_2A"}, {CapMWType2B, "MEM_WINDOW_TYPE_2B"},
	{CapRCIPCsum, "RC_IP_CSUM"}, {CapRawIPCsum, "RAW_IP_CSUM"}, {CapCrossChannel, "CROSS_CHANNEL"},
	{CapFlowSteering, "MANAGED_FLOW_STEERING"},
	{CapRawScatterFCS, "RAW_SCATTER_FCS"}, {CapFlushGlobal, "FLUSH_GLOBAL"}, {CapFlushPersist, "FLUSH_PERSISTENT"},
	{CapAtomicWrite, "ATOMIC_WRITE"}, {CapDC, "DC_TRANSPORT"},
}

// String lists the flags by their verbs names.
func (c DeviceCaps) String() string { return flagString(c, deviceCapNames) }

// PortCaps has the capabilities of a port, with the bits of port_cap_flags.
type PortCaps uint32

// PortCMSupport: the port answers the connection manager.
const PortCMSupport PortCaps = 1 << 16

// String lists the flags by their verbs names.
func (c PortCaps) String() string {
	return flagString(c, []flagName[PortCaps]{{PortCMSupport, "CM_SUP"}})
}

type flagName[F ~uint32 | ~uint64] struct {
	flag F
	name string
}

// flagString lists flags by name, and flags without a name as a number.
func flagString[F ~uint32 | ~uint64](f F, names []flagName[F]) string {
	var set []string
	for _, n := range names {
		if f&n.flag != 0 {
			set = append(set, n.name)
			f &^= n.flag
		}
	}
	if f != 0 || len(set) == 0 {
		set = append(set, fmt.Sprintf("%#x", uint64(f)))
	}
	return strings.Join(set, "|")
}

// AtomicCap is the scope of RDMA atomics, with the values of enum
// ibv_atomic_cap.
type AtomicCap uint8

const (
	AtomicNone AtomicCap = 0 // no atomics
	AtomicHCA  AtomicCap = 1 // atomic with all RDMA atomics of the device
	AtomicGlob AtomicCap = 2 // also atomic with the CPU and other devices
)

// String returns the verbs name.
func (c AtomicCap) String() string {
	return enumString(c, map[AtomicCap]string{AtomicNone: "ATOMIC_NONE", AtomicHCA: "ATOMIC_HCA", AtomicGlob: "ATOMIC_GLOB"}, "AtomicCap")
}

// PortState is the state of a port, with the values of enum ibv_port_state.
type PortState uint8

const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

// String returns the verbs name (ibv_port_state_str).
func (s PortState) String() string {
	return enumString(s, map[PortState]string{PortNop: "PORT_NOP", PortDown: "PORT_DOWN", PortInit: "PORT_INIT", PortArmed: "PORT_ARMED",
		PortActive: "PORT_ACTIVE", PortActiveDefer: "PORT_ACTIVE_DEFER"}, "PortState")
}

// PhysState is the state of a port's link, with the values of phys_state.
type PhysState uint8

const (
	PhysPolling  PhysState = 2
	PhysDisabled PhysState = 3 // down, or without a carrier
	PhysLinkUp   PhysState = 5
)

// String returns the name ibv_devinfo prints.
func (s PhysState) String() string {
	return enumString(s, map[PhysState]string{PhysPolling: "POLLING", PhysDisabled: "DISABLED", PhysLinkUp: "LINK_UP"}, "PhysState")
}

// LinkLayer is the layer below the transport, with the values of link_layer.
type LinkLayer uint8

const (
	LinkLayerUnspecified LinkLayer = 0
	LinkLayerInfiniBand  LinkLayer = 1
	LinkLayerEthernet    LinkLayer = 2
)

// String returns the name ibv_devinfo prints.
func (l LinkLayer) String() string {
	return enumString(l, map[LinkLayer]string{LinkLayerUnspecified: "Unspecified", LinkLayerInfiniBand: "InfiniBand", LinkLayerEthernet: "Ethernet"}, "LinkLayer")
}

// GIDType is the protocol of a GID, with the values of enum ibv_gid_type.
type GIDType uint8

const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

// String returns the name ibv_devinfo prints.
func (t GIDType) String() string {
	return enumString(t, map[GIDType]string{GIDTypeIB: "IB", GIDTypeRoCEv1: "RoCE v1", GIDTypeRoCEv2: "RoCE v2"}, "GIDType")
}

// LinkWidth is the number of lanes of a link, with the values of active_width.
type LinkWidth uint8

const (
	Width1X  LinkWidth = 1
	Width4X  LinkWidth = 2
	Width8X  LinkWidth = 4
	Width12X LinkWidth = 8
	Width2X  LinkWidth = 16
)

// String returns the name ibv_devinfo prints.
func (w LinkWidth) String() string {
	return enumString(w, map[LinkWidth]string{Width1X: "1X", Width2X: "2X", Width4X: "4X", Width8X: "8X", Width12X: "12X"}, "LinkWidth")
}

// LinkSpeed is the speed of a lane, with the values of active_speed.
type LinkSpeed uint16

const (
	SpeedSDR   LinkSpeed = 1   // 2.5 Gb/s
	SpeedDDR   LinkSpeed = 2   // 5 Gb/s
	SpeedQDR   LinkSpeed = 4   // 10 Gb/s
	SpeedFDR10 LinkSpeed = 8   // 10 Gb/s
	SpeedFDR   LinkSpeed = 16  // 14 Gb/s
	SpeedEDR   LinkSpeed = 32  // 25 Gb/s
	SpeedHDR   LinkSpeed = 64  // 50 Gb/s
	SpeedNDR   LinkSpeed = 128 // 100 Gb/s
	SpeedXDR   LinkSpeed = 256 // 200 Gb/s
)

// String returns the name ibv_devinfo prints.
func (s LinkSpeed) String() string {
	return enumString(s, map[LinkSpeed]string{SpeedSDR: "2.5 Gbps", SpeedDDR: "5.0 Gbps", SpeedQDR: "10.0 Gbps", SpeedFDR10: "10.0 Gbps",
		SpeedFDR: "14.0 Gbps", SpeedEDR: "25.0 Gbps", SpeedHDR: "50.0 Gbps", SpeedNDR: "100.0 Gbps", SpeedXDR: "200.0 Gbps"}, "LinkSpeed")
}

// widthAndSpeed converts the speed of an Ethernet link in Mb/s to
// InfiniBand's width and speed, because the verbs have no others. It returns
// the slowest combination that is not slower than the link, and 1X SDR for an
// unknown speed, as Linux does.
func widthAndSpeed(mbps int) (LinkWidth, LinkSpeed) {
	for _, r := range []struct {
		mbps  int
		width LinkWidth
		speed LinkSpeed
	}{
		{2_500, Width1X, SpeedSDR}, {5_000, Width1X, SpeedDDR}, {10_000, Width1X, SpeedFDR10}, {20_000, Width4X, SpeedDDR},
		{25_000, Width1X, SpeedEDR}, {40_000, Width4X, SpeedFDR10}, {50_000, Width1X, SpeedHDR}, {100_000, Width4X, SpeedEDR},
		{200_000, Width4X, SpeedHDR}, {400_000, Width4X, SpeedNDR},
	} {
		if mbps <= r.mbps {
			return r.width, r.speed
		}
	}
	return Width4X, SpeedXDR
}

// enumString returns the name of a value. It never returns an empty string.
func enumString[K ~uint8 | ~uint16](k K, names map[K]string, kind string) string {
	if s, ok := names[k]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", kind, k)
}

// DropCounters count packets that were dropped before they reached a queue pair, by the
// first failed check. The order of checks is that of rxe. Counters.ICRCErr counts
// packets with a wrong ICRC.
type DropCounters struct {
	Malformed uint64 // no RoCEv2 packet, unknown opcode, wrong lengths, bad checksum
	NotForUs  uint64 // the destination is not an address or group of the device, the VLAN is another one, or the source is not another host
	NoQP      uint64 // the queue pair does not exist, or the destination is a group without the multicast QPN
	PKey      uint64 // P_Key does not match
	NoMAD     uint64 // to QP 1, but not a management datagram
	MADFlood  uint64 // to QP 1, beyond ConnLimits.MADRate; the ICRC was not checked
	Overrun   uint64 // a shard or the connection manager did not keep up
}

// ShareCounters counts packets between processes that share the device's address: packets
// from one to another, and packets that the kernel delivered to the wrong process. See
// docs/sharing.md.
type ShareCounters struct {
	Sent, Received uint64 // packets to and from other processes
	Strays         uint64 // received packets that had arrived from the network at the wrong process
	Dropped        uint64 // packets to a process that had no room or had ended
}

// Counters is a snapshot of all counters of a device.
type Counters struct {
	qp.Counters              // of all queue pairs, with rxe's hw_counters names
	Drops       DropCounters // packets that reached no queue pair
	Link        link.Stats   // of all ports together
	Shared      ShareCounters
	PortErrors  uint64 // failed calls of ports, except while the link is down
	LostEvents  uint64 // asynchronous events lost because the queue was full
	CM          cm.Counters
}

// Counters returns the device's counters (rdma statistic show).
func (d *Device) Counters() Counters {
	var c Counters
	n := d.nic.Counters(func() { c.CM = d.cm.Counters() })
	c.Counters, c.Drops, c.Link, c.PortErrors = n.QP, DropCounters(n.Drops), n.Link, n.PortErrors
	c.Shared, c.LostEvents = ShareCounters(n.Shared), d.events.lost.Load()
	return c
}

// CalcCap has the reductions that a device offers (struct
// ibv_exp_device_calc_cap).
type CalcCap struct {
	Types    []CalcType
	Sizes    []CalcSize
	IntOps   []CalcOp
	UintOps  []CalcOp
	FloatOps []CalcOp
}

// Offers reports whether the device offers a reduction.
func (c *CalcCap) Offers(r Calc) bool {
	ops := map[CalcType][]CalcOp{CalcInt: c.IntOps, CalcUint: c.UintOps, CalcFloat: c.FloatOps}[r.Type]
	return slices.Contains(c.Types, r.Type) && slices.Contains(c.Sizes, r.Size) && slices.Contains(ops, r.Op)
}
