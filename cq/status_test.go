package cq

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

func TestStatus(t *testing.T) {
	if err := Success.Err(); err != nil {
		t.Errorf("Success.Err() = %v", err)
	}
	err := fmt.Errorf("qp 0x11: write: %w", RetryExcErr.Err())
	if !errors.Is(err, RetryExceeded) || errors.Is(err, RNRRetryExceeded) {
		t.Errorf("errors.Is does not tell %v", err)
	}
	var se StatusError
	if !errors.As(err, &se) || se.Status() != RetryExcErr {
		t.Errorf("errors.As finds %v", se)
	}
	var to interface{ Timeout() bool }
	if !errors.As(err, &to) || !to.Timeout() || RemoteAccess.Timeout() {
		t.Error("Timeout")
	}
	_ = net.Error(nil) // the interface that Timeout belongs to
	wc := WC{Status: WRFlushErr}
	if !errors.Is(wc.Err(), Flushed) {
		t.Errorf("WC.Err() = %v", wc.Err())
	}
}

func TestStrings(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Success.String(), "SUCCESS"},
		{RNRRetryExcErr.String(), "RNR_RETRY_EXC_ERR"},
		{TMRndvIncomplete.String(), "TM_RNDV_INCOMPLETE"},
		{Status(24).String(), "Status(24)"},
		{Flushed.Error(), "work request flushed: the queue pair is in the error state (WR_FLUSH_ERR)"},
		{StatusError(99).Error(), "work request failed: Status(99)"},
		{OpAtomicWrite.String(), "ATOMIC_WRITE"},
		{OpMaskedCompSwap.String(), "MASKED_COMP_SWAP"},
		{OpMaskedFetchAdd.String(), "MASKED_FETCH_ADD"},
		{OpRecv.String(), "RECV"},
		{OpRecvRDMAWithImm.String(), "RECV_RDMA_WITH_IMM"},
		{Opcode(99).String(), "Opcode(99)"},
		{Opcode(130).String(), "Opcode(130)"},
		{Flags(0).String(), ""},
		{(GRH | WithInv).String(), "GRH|WITH_INV"},
		{Flags(0x41).String(), "GRH|0x40"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
	for s := Success; s <= TMRndvIncomplete; s++ {
		if s.String() == "" || StatusError(s).Error() == "" {
			t.Errorf("status %d has no name", s)
		}
	}
	if !OpRecv.Recv() || OpFlush.Recv() {
		t.Error("Opcode.Recv")
	}
}
