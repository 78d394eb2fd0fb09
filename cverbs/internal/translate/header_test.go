package translate

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/roce"
)

// constants are values that must be equal on both sides, by the names of <infiniband/verbs.h>.
var constants = map[string]uint64{
	"IBV_QPT_RC": uint64(roce.RC), "IBV_QPT_UC": uint64(roce.UC), "IBV_QPT_UD": uint64(roce.UD),
	"IBV_QPT_XRC_SEND": uint64(roce.XRCSend), "IBV_QPT_XRC_RECV": uint64(roce.XRCRecv),

	"IBV_QPS_RESET": uint64(roce.StateReset), "IBV_QPS_INIT": uint64(roce.StateInit), "IBV_QPS_RTR": uint64(roce.StateRTR),
	"IBV_QPS_RTS": uint64(roce.StateRTS), "IBV_QPS_SQD": uint64(roce.StateSQD), "IBV_QPS_SQE": uint64(roce.StateSQE),
	"IBV_QPS_ERR": uint64(roce.StateErr),

	"IBV_MIG_MIGRATED": uint64(roce.MigMigrated), "IBV_MIG_REARM": uint64(roce.MigRearm), "IBV_MIG_ARMED": uint64(roce.MigArmed),

	"IBV_MTU_256": uint64(roce.MTU256), "IBV_MTU_512": uint64(roce.MTU512), "IBV_MTU_1024": uint64(roce.MTU1024),
	"IBV_MTU_2048": uint64(roce.MTU2048), "IBV_MTU_4096": uint64(roce.MTU4096),

	"IBV_QP_STATE": uint64(roce.AttrState), "IBV_QP_CUR_STATE": uint64(roce.AttrCurState), "IBV_QP_EN_SQD_ASYNC_NOTIFY": uint64(roce.AttrSQDNotify),
	"IBV_QP_ACCESS_FLAGS": uint64(roce.AttrAccess), "IBV_QP_PKEY_INDEX": uint64(roce.AttrPKeyIndex), "IBV_QP_PORT": uint64(roce.AttrPort),
	"IBV_QP_QKEY": uint64(roce.AttrQKey), "IBV_QP_AV": uint64(roce.AttrAV), "IBV_QP_PATH_MTU": uint64(roce.AttrPathMTU),
	"IBV_QP_TIMEOUT": uint64(roce.AttrTimeout), "IBV_QP_RETRY_CNT": uint64(roce.AttrRetryCnt), "IBV_QP_RNR_RETRY": uint64(roce.AttrRNRRetry),
	"IBV_QP_RQ_PSN": uint64(roce.AttrRQPSN), "IBV_QP_MAX_QP_RD_ATOMIC": uint64(roce.AttrMaxRdAtomic), "IBV_QP_ALT_PATH": uint64(roce.AttrAltPath),
	"IBV_QP_MIN_RNR_TIMER": uint64(roce.AttrMinRNRTimer), "IBV_QP_SQ_PSN": uint64(roce.AttrSQPSN),
	"IBV_QP_MAX_DEST_RD_ATOMIC": uint64(roce.AttrMaxDestRdAtomic), "IBV_QP_PATH_MIG_STATE": uint64(roce.AttrPathMigState),
	"IBV_QP_CAP": uint64(roce.AttrCap), "IBV_QP_DEST_QPN": uint64(roce.AttrDestQPN), "IBV_QP_RATE_LIMIT": attrRateLimit,

	"IBV_WR_RDMA_WRITE": uint64(roce.Write), "IBV_WR_RDMA_WRITE_WITH_IMM": uint64(roce.WriteImm), "IBV_WR_SEND": uint64(roce.Send),
	"IBV_WR_SEND_WITH_IMM": uint64(roce.SendImm), "IBV_WR_RDMA_READ": uint64(roce.Read), "IBV_WR_ATOMIC_CMP_AND_SWP": uint64(roce.CompareSwap),
	"IBV_WR_ATOMIC_FETCH_AND_ADD": uint64(roce.FetchAdd), "IBV_WR_LOCAL_INV": uint64(roce.LocalInv), "IBV_WR_BIND_MW": uint64(roce.BindMW),
	"IBV_WR_SEND_WITH_INV": uint64(roce.SendInv), "IBV_WR_ATOMIC_WRITE": uint64(roce.AtomicWrite),

	"IBV_SEND_FENCE": uint64(roce.Fence), "IBV_SEND_SIGNALED": uint64(roce.Signaled), "IBV_SEND_SOLICITED": uint64(roce.Solicited),
	"IBV_SEND_INLINE": sendInline,

	"IBV_WC_SUCCESS": uint64(roce.StatusSuccess), "IBV_WC_LOC_LEN_ERR": uint64(roce.StatusLocLenErr), "IBV_WC_LOC_QP_OP_ERR": uint64(roce.StatusLocQPOpErr),
	"IBV_WC_LOC_PROT_ERR": uint64(roce.StatusLocProtErr), "IBV_WC_WR_FLUSH_ERR": uint64(roce.StatusWRFlushErr), "IBV_WC_MW_BIND_ERR": uint64(roce.StatusMWBindErr),
	"IBV_WC_BAD_RESP_ERR": uint64(roce.StatusBadRespErr), "IBV_WC_LOC_ACCESS_ERR": uint64(roce.StatusLocAccessErr),
	"IBV_WC_REM_INV_REQ_ERR": uint64(roce.StatusRemInvReqErr), "IBV_WC_REM_ACCESS_ERR": uint64(roce.StatusRemAccessErr),
	"IBV_WC_REM_OP_ERR": uint64(roce.StatusRemOpErr), "IBV_WC_RETRY_EXC_ERR": uint64(roce.StatusRetryExcErr),
	"IBV_WC_RNR_RETRY_EXC_ERR": uint64(roce.StatusRNRRetryExcErr), "IBV_WC_FATAL_ERR": uint64(roce.StatusFatalErr),
	"IBV_WC_RESP_TIMEOUT_ERR": uint64(roce.StatusRespTimeoutErr), "IBV_WC_GENERAL_ERR": uint64(roce.StatusGeneralErr),

	"IBV_WC_SEND": uint64(roce.WCSend), "IBV_WC_RDMA_WRITE": uint64(roce.WCWrite), "IBV_WC_RDMA_READ": uint64(roce.WCRead),
	"IBV_WC_COMP_SWAP": uint64(roce.WCCompareSwap), "IBV_WC_FETCH_ADD": uint64(roce.WCFetchAdd), "IBV_WC_BIND_MW": uint64(roce.WCBindMW),
	"IBV_WC_LOCAL_INV": uint64(roce.WCLocalInv), "IBV_WC_ATOMIC_WRITE": uint64(roce.WCAtomicWrite), "IBV_WC_RECV": uint64(roce.WCRecv),
	"IBV_WC_RECV_RDMA_WITH_IMM": uint64(roce.WCRecvWriteImm),
	"IBV_WC_GRH":                uint64(roce.WCGRH), "IBV_WC_WITH_IMM": uint64(roce.WCWithImm), "IBV_WC_WITH_INV": uint64(roce.WCWithInv),

	"IBV_ACCESS_LOCAL_WRITE": uint64(roce.LocalWrite), "IBV_ACCESS_REMOTE_WRITE": uint64(roce.RemoteWrite), "IBV_ACCESS_REMOTE_READ": uint64(roce.RemoteRead),
	"IBV_ACCESS_REMOTE_ATOMIC": uint64(roce.RemoteAtomic), "IBV_ACCESS_MW_BIND": uint64(roce.MWBind), "IBV_ACCESS_ZERO_BASED": uint64(roce.ZeroBased),
	"IBV_ACCESS_ON_DEMAND": uint64(roce.OnDemand), "IBV_ACCESS_HUGETLB": uint64(roce.HugeTLB), "IBV_ACCESS_RELAXED_ORDERING": uint64(roce.RelaxedOrdering),

	"IBV_REREG_MR_CHANGE_TRANSLATION": uint64(roce.ReregTranslation), "IBV_REREG_MR_CHANGE_PD": uint64(roce.ReregPD), "IBV_REREG_MR_CHANGE_ACCESS": uint64(roce.ReregAccess),
	"IBV_MW_TYPE_1": uint64(roce.MWType1), "IBV_MW_TYPE_2": uint64(roce.MWType2),
	"IBV_SRQ_MAX_WR": uint64(roce.SRQMaxWR), "IBV_SRQ_LIMIT": uint64(roce.SRQLimit),

	"IBV_EVENT_CQ_ERR": uint64(roce.EventCQErr), "IBV_EVENT_QP_FATAL": uint64(roce.EventFatal), "IBV_EVENT_QP_REQ_ERR": uint64(roce.EventReqErr),
	"IBV_EVENT_QP_ACCESS_ERR": uint64(roce.EventAccessErr), "IBV_EVENT_COMM_EST": uint64(roce.EventCommEst), "IBV_EVENT_SQ_DRAINED": uint64(roce.EventSQDrained),
	"IBV_EVENT_PATH_MIG": uint64(roce.EventPathMig), "IBV_EVENT_PATH_MIG_ERR": uint64(roce.EventPathMigErr), "IBV_EVENT_DEVICE_FATAL": uint64(roce.EventDeviceFatal),
	"IBV_EVENT_PORT_ACTIVE": uint64(roce.EventPortActive), "IBV_EVENT_PORT_ERR": uint64(roce.EventPortErr), "IBV_EVENT_SRQ_ERR": uint64(roce.EventSRQErr),
	"IBV_EVENT_SRQ_LIMIT_REACHED": uint64(roce.EventSRQLimit), "IBV_EVENT_QP_LAST_WQE_REACHED": uint64(roce.EventLastWQE),
	"IBV_EVENT_GID_CHANGE": uint64(roce.EventGIDChange), "IBV_EVENT_WQ_FATAL": uint64(eventTypes - 1),

	"IBV_DEVICE_BAD_PKEY_CNTR": uint64(roce.CapBadPKeyCntr), "IBV_DEVICE_BAD_QKEY_CNTR": uint64(roce.CapBadQKeyCntr), "IBV_DEVICE_AUTO_PATH_MIG": uint64(roce.CapAutoPathMig),
	"IBV_DEVICE_UD_AV_PORT_ENFORCE": uint64(roce.CapUDAVPortEnforce), "IBV_DEVICE_CURR_QP_STATE_MOD": uint64(roce.CapCurrQPStateMod),
	"IBV_DEVICE_PORT_ACTIVE_EVENT": uint64(roce.CapPortActiveEvent), "IBV_DEVICE_SYS_IMAGE_GUID": uint64(roce.CapSysImageGUID),
	"IBV_DEVICE_RC_RNR_NAK_GEN": uint64(roce.CapRCRNRNakGen), "IBV_DEVICE_SRQ_RESIZE": uint64(roce.CapSRQResize), "IBV_DEVICE_MEM_WINDOW": uint64(roce.CapMemWindow),
	"IBV_DEVICE_XRC": uint64(roce.CapXRC), "IBV_DEVICE_MEM_MGT_EXTENSIONS": uint64(roce.CapMemMgtExtensions), "IBV_DEVICE_MEM_WINDOW_TYPE_2B": uint64(roce.CapMWType2B),
	"IBV_ATOMIC_NONE": uint64(roce.AtomicNone), "IBV_ATOMIC_HCA": uint64(roce.AtomicHCA), "IBV_ATOMIC_GLOB": uint64(roce.AtomicGlob),

	"IBV_PORT_DOWN": uint64(roce.PortDown), "IBV_PORT_ACTIVE": uint64(roce.PortActive), "IBV_LINK_LAYER_ETHERNET": uint64(roce.LinkLayerEthernet),
}

// Programs get structures with the values of package roce: these must be the header's.
func TestConstants(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	var program bytes.Buffer
	fmt.Fprintln(&program, "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) {")
	for name := range constants {
		fmt.Fprintf(&program, "printf(\"%s %%llu\\n\", (unsigned long long)%s);\n", name, name)
	}
	fmt.Fprintln(&program, "return 0; }")
	bin := filepath.Join(t.TempDir(), "constants")
	build := exec.Command(cc, "-x", "c", "-o", bin, "-")
	build.Stdin = &program
	if out, err := build.CombinedOutput(); bytes.Contains(out, []byte("infiniband/verbs.h: No such file")) {
		t.Skip("no <infiniband/verbs.h>")
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var name string
		var value uint64
		fmt.Sscan(line, &name, &value)
		if constants[name] != value {
			t.Errorf("%s is %d, here %d", name, value, constants[name])
		}
	}
}
