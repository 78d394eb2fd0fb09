package scenario_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/qp"
)

// TestConnParamDefaults: in each number 0 is the default, and -1 is none.
func TestConnParamDefaults(t *testing.T) {
	none := roce.ConnParam{ResponderResources: -1, InitiatorDepth: -1, RetryCount: -1, RNRRetryCount: -1}
	for _, tt := range []struct {
		name                 string
		dial, accept         roce.ConnParam
		client, server       int // READs that each may have outstanding
		retries, rnr, rnrSrv int
	}{
		{"zero", roce.ConnParam{}, roce.ConnParam{}, qp.DefaultRdAtomic, qp.DefaultRdAtomic, 7, 7, 7},
		{"private data", roce.ConnParam{PrivateData: []byte("x")}, roce.ConnParam{PrivateData: []byte("y")}, qp.DefaultRdAtomic, qp.DefaultRdAtomic, 7, 7, 7},
		{"nothing", none, none, 0, 0, 0, 0, 0},
		{"as the device has", roce.ConnParam{ResponderResources: qp.MaxRdAtomic, InitiatorDepth: qp.MaxRdAtomic, RetryCount: 3, RNRRetryCount: 2},
			roce.ConnParam{}, qp.MaxRdAtomic, qp.MaxRdAtomic, 3, 2, 2},
		{"the lower number", roce.ConnParam{ResponderResources: 9, InitiatorDepth: 5},
			roce.ConnParam{ResponderResources: 200, InitiatorDepth: 4}, 5, 4, 7, 7, 7},
		{"one number", roce.ConnParam{InitiatorDepth: 3}, roce.ConnParam{RNRRetryCount: -1}, 3, qp.DefaultRdAtomic, 7, 7, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCouple(t, false)
				server, client := c.connect(roce.DialConfig{Param: tt.dial}, roce.AcceptConfig{Param: tt.accept})
				cp, sp := client.Param(), server.Param()
				for _, v := range []struct {
					what      string
					got, want int
				}{
					{"READs of the client", cp.InitiatorDepth, tt.client}, {"READs of the server", sp.InitiatorDepth, tt.server},
					{"READs the client grants", cp.ResponderResources, tt.server}, {"READs the server grants", sp.ResponderResources, tt.client},
					{"retries of the client", cp.RetryCount, tt.retries}, {"RNR retries of the server", sp.RNRRetryCount, tt.rnr},
					{"RNR retries of the client", cp.RNRRetryCount, tt.rnrSrv}, {"RNR timer", int(cp.MinRNRTimer), roce.DefaultMinRNRTimer},
				} {
					if v.got != v.want {
						t.Errorf("%s: %d, want %d", v.what, v.got, v.want)
					}
				}
			})
		})
	}
}

// TestConnParamRefused: numbers that no connection can have, and a queue pair of another device, are errors on both sides;
// nothing is silently changed.
func TestConnParamRefused(t *testing.T) {
	for name, p := range map[string]roce.ConnParam{
		"responder resources": {ResponderResources: qp.MaxRdAtomic + 1}, "initiator depth": {InitiatorDepth: 256},
		"negative READs": {ResponderResources: -2}, "negative retries": {RNRRetryCount: -2},
		"queue pair": {QPN: 5}, "shared receive queue": {SRQ: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCouple(t, false)
				_, err := c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{Param: p})
				wantErr(t, "Dial", err, syscall.EINVAL)
				go c.client.Dial(context.Background(), serverAddr, roce.DialConfig{})
				_, err = ok(c.listener.Accept(within(t, time.Minute)))(t).Accept(within(t, time.Minute), roce.AcceptConfig{Param: p})
				wantErr(t, "Accept", err, syscall.EINVAL)
			})
		})
	}
}
