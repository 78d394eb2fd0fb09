package verbs

import (
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// Threads of a program use objects that other threads destroy, and close contexts that other threads use.
// Their calls succeed or fail with EINVAL or EBUSY; no other error and no crash is allowed.
func TestConcurrentUse(t *testing.T) {
	const rounds = 30
	for range rounds {
		e := newEnd(t, device0)
		e.create(e.config(roce.RC))
		e.init()
		ch := must[abi.Handle](t)(CreateChannel(e.ctx, eventfd(t)))
		calls := []func() error{
			func() error { _, err := PollCQ(e.cq, make([]abi.WC, 4)); return err },
			func() error {
				_, err := PostRecv(e.qp, []abi.RecvWR{{SG: e.sge(0, 8), NumSGE: 1}})
				return err
			},
			func() error { _, err := ChannelEvent(ch); return err },
			func() error {
				var info abi.MRInfo
				h, err := RegMR(e.pd, addressOf(e.mem), memoryLen, 0, allAccess, &info)
				if err == nil {
					err = DeregMR(h)
				}
				return err
			},
			func() error {
				h, _, err := CreateCQ(e.ctx, 8, ch, 0, 0)
				if err == nil {
					err = DestroyCQ(h)
				}
				return err
			},
			func() error {
				init := e.config(roce.UC)
				h, _, err := CreateQP(e.ctx, &init)
				if err == nil {
					err = DestroyQP(h)
				}
				return err
			},
			func() error { return NextEvent(e.ctx, new(abi.Event)) },
			func() error { var a abi.QPAttr; return ModifyQP(e.qp, &a, uint32(roce.AttrState)) },
			func() error {
				if err := DestroyQP(e.qp); err != nil {
					return err
				}
				return DestroyCQ(e.cq)
			},
		}
		var wg sync.WaitGroup
		for _, call := range calls {
			wg.Go(func() {
				for range rounds {
					switch errno := Errno(call()); errno {
					case 0, syscall.EINVAL, syscall.EBUSY, syscall.EAGAIN, syscall.ENOMEM:
					default:
						t.Errorf("a call fails: %v", errno)
					}
				}
			})
		}
		wg.Go(func() { Close(e.ctx) })
		wg.Wait()
	}
	if d := deviceNamed(device0); d.dev != nil {
		t.Error("the device is open when no context has it")
	}
}
