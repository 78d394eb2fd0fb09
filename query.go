package roce

import (
	"math"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// DeviceAttr is what ibv_query_device_ex reports (struct ibv_device_attr_ex).
// What the device does not offer is 0.
type DeviceAttr struct {
	FWVer        string // version of this module
	GUID         uint64 // node_guid and sys_image_guid
	VendorID     uint32 // 0xFFFFFF as with rxe: nobody's
	VendorPartID uint32
	HWVer        uint32
	PhysPorts    int // always 1; ports are numbered from 1
	Shards       int // num_comp_vectors; see CQConfig.Shard
	Caps         DeviceCaps
	AtomicCap    AtomicCap

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
	MaxDepth    int // indirect regions below one another (max_umr_recursion_depth)
	MaxPD       int
	MaxAH       int
	MaxPKeys    int
	MaxMcastGrp int // multicast groups
	MaxMcastQPs int // queue pairs attached to one (max_mcast_qp_attach); to all, as many in each
	MaxSRQ      int
	MaxSRQWR    int
	MaxSRQSGE   int

	MaxRdAtom     int // READs and atomics a peer may have outstanding on a queue pair (max_qp_rd_atom)
	MaxInitRdAtom int // and a queue pair at its peer
	MaxResRdAtom  int // and all peers together

	LocalCAAckDelay uint8 // how long an answer may take, a code of 4.096 µs·2^n

	// Of the port, for those who have but one; see [Device.QueryPort].
	Link      link.Info
	Up        bool
	ActiveMTU bth.MTU // largest payload a packet may have
	PathMTU   bth.MTU // what connections are offered
}

// unlimited stands for what only memory limits.
const unlimited = math.MaxInt32

// vendorNone is the vendor ID of rxe, which is no vendor's.
const vendorNone = 0xFFFFFF

// Query returns the device's attributes (ibv_query_device,
// ibv_query_device_ex).
func (d *Device) Query() DeviceAttr {
	path, _ := bth.PathMTU(d.mtu())
	return DeviceAttr{
		FWVer: moduleVersion(), GUID: d.guid, VendorID: vendorNone, PhysPorts: 1, Shards: len(d.shards),
		Caps: CapBadPKeyCntr | CapBadQKeyCntr | CapAutoPathMig | CapUDAVPortEnforce | CapCurrQPStateMod | CapPortActiveEvent |
			CapSysImageGUID | CapRCRNRNakGen | CapSRQResize | CapXRC | CapMemWindow | CapMWType2B |
			CapMemMgtExtensions | CapFlushGlobal | CapFlushPersist | CapAtomicWrite,
		// Atomics are those of the CPU where it has any: on words that are aligned
		// in memory. On others they are atomic with those of the device.
		AtomicCap: AtomicGlob,
		MaxMRSize: mr.MaxLength, PageSizeCap: 0xFFFFF000, // of no concern: memory is not pinned
		MaxQP: maxQP, MaxQPWR: qp.MaxWR, MaxSGE: qp.MaxSGE, MaxSGERd: qp.MaxSGE, MaxInline: qp.MaxInline,
		MaxCQ: unlimited, MaxCQE: cq.MaxEntries,
		MaxMR: mr.MaxRegions, MaxMW: mr.MaxWindows, MaxFastReg: mr.MaxPieces, MaxParts: mr.MaxPieces, MaxDepth: mr.MaxDepth,
		MaxPD: unlimited, MaxAH: unlimited, MaxPKeys: 1,
		MaxMcastGrp: MaxMulticastGroups, MaxMcastQPs: MaxMulticastQPs,
		MaxSRQ: maxSRQ, MaxSRQWR: qp.MaxSRQWR, MaxSRQSGE: qp.MaxSRQSGE,
		MaxRdAtom: qp.MaxRdAtomic, MaxInitRdAtom: qp.MaxRdAtomic, MaxResRdAtom: qp.MaxRdAtomic * maxQP,
		LocalCAAckDelay: cm.DefaultAckDelay,
		Link:            d.link(), Up: d.up(), ActiveMTU: bth.ActiveMTU(d.mtu()), PathMTU: path,
	}
}

// link is what the device sits on, as it is now.
func (d *Device) link() link.Info {
	info, now := d.info, d.state.Load()
	info.Interface, info.MAC, info.MTU = now.name, now.mac, now.mtu
	return info
}

// moduleVersion is the version of this module in the running program.
var moduleVersion = sync.OnceValue(func() string {
	const path, devel = "github.com/goroce/roce", "(devel)"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path && m.Version != "" {
			return m.Version
		}
	}
	return devel
})

// up reports whether the link is up.
func (d *Device) up() bool { return d.shards[0].port.Stats().LinkUp && d.port.works() }

// PortAttr is what ibv_query_port reports (struct ibv_port_attr). What only
// InfiniBand has (LIDs, subnet manager) is left out; it is 0 on RoCE.
type PortAttr struct {
	State        PortState
	PhysState    PhysState
	LinkLayer    LinkLayer
	MaxMTU       bth.MTU
	ActiveMTU    bth.MTU // from the MTU of the interface
	ActiveWidth  LinkWidth
	ActiveSpeed  LinkSpeed // of one lane
	Caps         PortCaps
	GIDTableLen  int
	PKeyTableLen int
	MaxMsgSize   uint32
	MaxVLs       int
	BadPKeys     uint64 // packets with a P_Key that is not in the table
	BadQKeys     uint64 // datagrams with a Q_Key that is not their queue pair's
	GRHRequired  bool   // always: address vectors name GIDs
}

// checkPort refuses ports that do not exist.
func checkPort(op string, port int) error {
	if port != 1 {
		return fail(op, syscall.EINVAL, "port %d does not exist, only 1", port)
	}
	return nil
}

// QueryPort returns the attributes of a port (ibv_query_port). The only one is
// 1; others are EINVAL.
func (d *Device) QueryPort(port int) (PortAttr, error) {
	if err := checkPort("query port", port); err != nil {
		return PortAttr{}, err
	}
	a := PortAttr{State: PortDown, PhysState: PhysDisabled, LinkLayer: LinkLayerEthernet, MaxMTU: bth.MTU4096,
		ActiveMTU: bth.ActiveMTU(d.mtu()), Caps: PortCMSupport, GIDTableLen: maxGIDs, PKeyTableLen: 1,
		MaxMsgSize: qp.MaxMessage, MaxVLs: 1, GRHRequired: true}
	a.ActiveWidth, a.ActiveSpeed = widthAndSpeed(d.info.Speed)
	if d.up() {
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
	IfIndex int // of the network interface, 0: the host has none for it
}

// QueryGID returns the GID at an index of a port's table (ibv_query_gid). That
// of an empty slot is zero. EINVAL when the port or the index does not exist.
func (d *Device) QueryGID(port, index int) (GID, error) {
	if err := checkPort("query gid", port); err != nil {
		return GID{}, err
	}
	if index < 0 || index >= maxGIDs {
		return GID{}, fail("query gid", syscall.EINVAL, "index %d, the table has %d entries", index, maxGIDs)
	}
	g, _ := d.gids.get().at(index)
	return g, nil
}

// QueryGIDEx is QueryGID with all that belongs to the entry
// (ibv_query_gid_ex). An empty slot is ENODATA.
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
	for i, g := range d.gids.get().slots {
		if !g.IsZero() {
			entries = append(entries, d.gidEntry(i, g))
		}
	}
	return entries
}

func (d *Device) gidEntry(index int, g GID) GIDEntry {
	return GIDEntry{GID: g, Index: index, Port: 1, Type: GIDTypeRoCEv2, IfIndex: d.info.Index}
}

// QueryPKey returns the P_Key at an index of a port's table (ibv_query_pkey).
// There is one, 0xFFFF at index 0; another index is ENOENT, another port
// EINVAL.
func (d *Device) QueryPKey(port, index int) (bth.PKey, error) {
	if err := checkPort("query pkey", port); err != nil {
		return 0, err
	}
	if index != 0 {
		return 0, fail("query pkey", syscall.ENOENT, "index %d, the table has one entry", index)
	}
	return bth.DefaultPKey, nil
}

// PKeyIndex finds a P_Key in a port's table (ibv_get_pkey_index). One that is
// not in it is ENOENT.
func (d *Device) PKeyIndex(port int, key bth.PKey) (int, error) {
	if err := checkPort("find pkey", port); err != nil {
		return 0, err
	}
	if key != bth.DefaultPKey {
		return 0, fail("find pkey", syscall.ENOENT, "%v is not in the table", key)
	}
	return 0, nil
}
