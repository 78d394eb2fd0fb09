package roce

import (
	"fmt"
	"strings"
)

// DeviceCaps says what a device offers, with the bits of enum
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
	CapCurrQPStateMod   DeviceCaps = 1 << 7  // Modify looks at CurState
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
	CapFlowSteering     DeviceCaps = 1 << 29
	CapRawScatterFCS    DeviceCaps = 1 << 34
	CapFlushGlobal      DeviceCaps = 1 << 38 // FLUSH to global visibility
	CapFlushPersist     DeviceCaps = 1 << 39 // FLUSH to persistence
	CapAtomicWrite      DeviceCaps = 1 << 40 // ATOMIC WRITE
)

var deviceCapNames = []flagName[DeviceCaps]{
	{CapResizeMaxWR, "RESIZE_MAX_WR"}, {CapBadPKeyCntr, "BAD_PKEY_CNTR"}, {CapBadQKeyCntr, "BAD_QKEY_CNTR"}, {CapRawMulti, "RAW_MULTI"},
	{CapAutoPathMig, "AUTO_PATH_MIG"}, {CapChangePhyPort, "CHANGE_PHY_PORT"}, {CapUDAVPortEnforce, "UD_AV_PORT_ENFORCE"},
	{CapCurrQPStateMod, "CURR_QP_STATE_MOD"}, {CapShutdownPort, "SHUTDOWN_PORT"}, {CapInitType, "INIT_TYPE"},
	{CapPortActiveEvent, "PORT_ACTIVE_EVENT"}, {CapSysImageGUID, "SYS_IMAGE_GUID"}, {CapRCRNRNakGen, "RC_RNR_NAK_GEN"},
	{CapSRQResize, "SRQ_RESIZE"}, {CapNNotifyCQ, "N_NOTIFY_CQ"}, {CapMemWindow, "MEM_WINDOW"}, {CapUDIPCsum, "UD_IP_CSUM"}, {CapXRC, "XRC"},
	{CapMemMgtExtensions, "MEM_MGT_EXTENSIONS"}, {CapMWType2A, "MEM_WINDOW_TYPE_2A"}, {CapMWType2B, "MEM_WINDOW_TYPE_2B"},
	{CapRCIPCsum, "RC_IP_CSUM"}, {CapRawIPCsum, "RAW_IP_CSUM"}, {CapFlowSteering, "MANAGED_FLOW_STEERING"},
	{CapRawScatterFCS, "RAW_SCATTER_FCS"}, {CapFlushGlobal, "FLUSH_GLOBAL"}, {CapFlushPersist, "FLUSH_PERSISTENT"},
	{CapAtomicWrite, "ATOMIC_WRITE"},
}

// String lists the flags by their verbs names.
func (c DeviceCaps) String() string { return flagString(c, deviceCapNames) }

// PortCaps says what a port offers, with the bits of port_cap_flags.
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

// flagString lists flags by name, and what has none as a number.
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

// AtomicCap says with what RDMA atomics are atomic, with the values of enum
// ibv_atomic_cap.
type AtomicCap uint8

const (
	AtomicNone AtomicCap = 0 // there are none
	AtomicHCA  AtomicCap = 1 // with all RDMA atomics of the device
	AtomicGlob AtomicCap = 2 // with everything else too
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

// LinkLayer is what is below the transport, with the values of link_layer.
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

// GIDType is what a GID is used for, with the values of enum ibv_gid_type.
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

// widthAndSpeed says in InfiniBand's terms how fast an Ethernet link of that
// many Mb/s is: the least combination that is not slower. The verbs have no
// other terms. Unknown speeds are 1X SDR, as with Linux.
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

// enumString looks a value up in its table and never returns an empty string.
func enumString[K ~uint8 | ~uint16](k K, names map[K]string, kind string) string {
	if s, ok := names[k]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", kind, k)
}
