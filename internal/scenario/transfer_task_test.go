package scenario_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

func testPostTask(t *testing.T) {
	const posts = 10
	cross(t, "ti_1", managedSend, func(t *testing.T, r *crossRig) {
		bad, err := r.dev.PostTask([]roce.Task{
			{QP: r.qp, Sends: emptySends(posts)},
			{QP: r.master, Sends: []roce.SendWR{
				r.qp.SendEnableWR(0, 1, roce.Signaled),
				r.mcq.WaitWR(1, 1, roce.Signaled),
				r.qp.SendEnableWR(2, 0, 0),
				r.rcq.WaitWR(3, posts, signaledLast),
			}},
		})
		if err != nil || bad != 2 {
			t.Fatalf("task %d: %v", bad, err)
		}
		r.want("the list", posts, posts, 0, 1, 3)
	})
	cross(t, "ti_2", crossConfig{}, func(t *testing.T, r *crossRig) {
		bad, err := r.dev.PostTask([]roce.Task{{QP: r.qp, Sends: emptySends(posts)}, {QP: r.qp, Sends: []roce.SendWR{r.qp.SendEnableWR(0, 1, signaledLast)}}})
		if bad != 1 {
			t.Errorf("the bad task is %d, want 1", bad)
		}
		wantErr(t, "SEND_ENABLE on an ordinary queue pair", err, syscall.EINVAL)
		r.want("an adapter posts the tasks before the bad one, this device none", 0, 0)
	})
}

// TestPostTaskRefused: a list with a bad task in the middle leaves nothing posted, and names the
// task and the work request.
func TestPostTaskRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		r := newCrossRigOn(t, n.open(n.multi("10.0.0.1", 2, destQPN)), managedSend)
		foreign := newPeer(t, n.device("10.0.0.2"), 100)
		far := newPeerOn(t, r.dev, 1, 100)
		farCQ := ok(r.dev.CreateCQWith(roce.CQConfig{Entries: 1, Shard: 1, CrossChannel: true}))(t)
		farManaged := ok(r.pd.CreateQP(roce.QPConfig{SendCQ: farCQ, CrossChannel: true, ManagedSend: true, ManagedRecv: true}))(t)
		closed := r.queuePair(roce.QPConfig{SendCQ: r.mcq})
		check(t, closed.Close())
		unconnected := ok(r.pd.CreateQP(roce.QPConfig{SendCQ: r.mcq}))(t)
		full := r.queuePair(roce.QPConfig{SendCQ: r.mcq, Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1}})
		send := emptySends(2)
		for name, c := range map[string]struct {
			task  roce.Task
			errno error
			says  string
		}{
			"no queue pair":        {roce.Task{Sends: send}, syscall.EINVAL, "there is no queue pair"},
			"another device":       {roce.Task{QP: foreign.qp, Sends: send}, syscall.EINVAL, "another device"},
			"another shard":        {roce.Task{QP: far.qp, Sends: send}, syscall.EINVAL, "another shard"},
			"no work requests":     {roce.Task{QP: r.qp}, syscall.EINVAL, "either sends or receives"},
			"sends and receives":   {roce.Task{QP: r.qp, Sends: send, Recvs: make([]roce.RecvWR, 1)}, syscall.EINVAL, "either sends or receives"},
			"closed":               {roce.Task{QP: closed, Sends: send}, roce.ErrClosed, ""},
			"state":                {roce.Task{QP: unconnected, Sends: send}, syscall.EINVAL, "work request 0 of the list: state is RESET"},
			"state, receive":       {roce.Task{QP: unconnected, Recvs: make([]roce.RecvWR, 1)}, syscall.EINVAL, "work request 0 of the list: state is RESET"},
			"bad work request":     {roce.Task{QP: r.qp, Sends: []roce.SendWR{send[0], {Opcode: 99}}}, syscall.EINVAL, "work request 1 of the list: unknown opcode"},
			"too many sends":       {roce.Task{QP: full, Sends: emptySends(full.SendCQ().Cap())}, syscall.ENOMEM, "send queue is full"},
			"too many with others": {roce.Task{QP: r.qp, Sends: emptySends(deepCaps.MaxSendWR - 1)}, syscall.ENOMEM, "send queue is full"},
			"too many receives":    {roce.Task{QP: r.qp, Recvs: make([]roce.RecvWR, deepCaps.MaxRecvWR)}, syscall.ENOMEM, "receive queue is full"},
			"wait on a far queue":  {roce.Task{QP: r.master, Sends: []roce.SendWR{farCQ.WaitWR(0, 1, 0)}}, syscall.EINVAL, "another device or shard"},
			"enable a far one":     {roce.Task{QP: r.master, Sends: []roce.SendWR{farManaged.SendEnableWR(0, 1, 0)}}, syscall.EINVAL, "another device or shard"},
		} {
			bad, err := r.dev.PostTask([]roce.Task{
				{QP: r.qp, Sends: send},
				{QP: r.qp, Recvs: make([]roce.RecvWR, 2)},
				{QP: r.master, Sends: []roce.SendWR{r.rcq.WaitWR(0, 1, signaledLast), r.qp.SendEnableWR(0, 0, 0)}},
				c.task,
				{QP: r.qp, Sends: send},
			})
			if bad != 3 {
				t.Errorf("%s: the bad task is %d, want 3", name, bad)
			}
			wantErr(t, name, err, c.errno)
			var e *roce.Error
			if errors.As(err, &e) && c.says != "" && (!strings.HasPrefix(e.Detail, "task 3: ") || !strings.Contains(e.Detail, c.says)) {
				t.Errorf("%s: error %q, want one that says %q of task 3", name, e.Detail, c.says)
			}
		}
		r.want("nothing is posted", 0, 0)
		check(t, r.scq.Resize(512))
		// If a wait of a refused list were counted, this one would not end.
		r.command(r.rcq.WaitWR(1, 1, signaledLast), r.qp.SendEnableWR(2, 1, roce.Signaled))
		r.send(1)
		r.want("the first message waits for its own arrival", 0, 0)
		if bad, err := r.dev.PostTask(nil); bad != 0 || err != nil {
			t.Errorf("an empty list: task %d, %v", bad, err)
		}
	})
}

// TestCrossChannelEnds: a waiting task ends with its queue pair or its device. Until then the completion queue that it
// waits for cannot be closed.
func TestCrossChannelEnds(t *testing.T) {
	t.Run("completion queue", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newCrossRig(t, managedSend)
			never := ok(r.dev.CreateCQWith(roce.CQConfig{Entries: 1, CrossChannel: true}))(t)
			r.send(1)
			r.command(never.WaitWR(1, 1, signaledLast), r.qp.SendEnableWR(2, 0, 0))
			synctest.Wait()
			wantErr(t, "closing a queue that is waited for", never.Close(), syscall.EBUSY)
			check(t, r.master.Close())
			check(t, never.Close())
			r.want("the held message stays", 0, 0)
			check(t, r.qp.Close())
		})
	})
	t.Run("error of the queue pair", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newCrossRig(t, managedSend)
			r.send(2)
			r.command(r.rcq.WaitWR(1, 64, signaledLast)) // for all receives, that is until they are flushed
			synctest.Wait()
			check(t, r.qp.Modify(&roce.Attr{State: roce.StateErr}, roce.AttrState))
			synctest.Wait()
			wcs := make([]roce.WC, 8)
			if n := r.scq.Poll(wcs); n != 2 || wcs[0].Status != cq.WRFlushErr || wcs[1].Status != cq.WRFlushErr {
				t.Errorf("%d held messages completed: %v", n, wcs[:n])
			}
			if n := r.mcq.Poll(wcs); n != 1 || wcs[0].Status != cq.Success {
				t.Errorf("%d waits for flushed receives completed: %v", n, wcs[:n])
			}
		})
	})
	t.Run("receive posted in ERR", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newCrossRig(t, crossQP)
			check(t, r.qp.Modify(&roce.Attr{State: roce.StateErr}, roce.AttrState))
			r.command(r.rcq.WaitWR(1, 65, signaledLast))
			synctest.Wait()
			if n := r.mcq.Poll(make([]roce.WC, 1)); n != 0 {
				t.Fatal("64 receives ended a wait for 65")
			}
			check(t, r.qp.PostRecv(&roce.RecvWR{}))
			synctest.Wait()
			if n := r.mcq.Poll(make([]roce.WC, 1)); n != 1 {
				t.Error("the flushed receive woke nobody")
			}
		})
	})
	t.Run("device", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newCrossRig(t, managedSend)
			r.send(1)
			r.command(r.rcq.WaitWR(1, 65, signaledLast), r.qp.SendEnableWR(2, 0, 0))
			synctest.Wait()
			check(t, r.dev.Close())
			wcs := make([]roce.WC, 8)
			if n := r.mcq.Poll(wcs); n != 2 || wcs[0].Status != cq.WRFlushErr {
				t.Errorf("%d work requests of the master completed: %v", n, wcs[:n])
			}
			bad, err := r.dev.PostTask([]roce.Task{{QP: r.qp, Sends: emptySends(1)}})
			wantErr(t, "a task of a closed device", err, roce.ErrClosed)
			if bad != 0 {
				t.Errorf("the bad task is %d", bad)
			}
		})
	})
}

// TestCrossChannelWays: waits end in all ways in which a device is driven.
func TestCrossChannelWays(t *testing.T) {
	for name, change := range map[string]func(*roce.Config){
		"background": func(*roce.Config) {},
		"lazy":       func(c *roce.Config) { c.Lazy = true },
		"polled":     func(c *roce.Config) { c.Polled = true },
		"early drop": func(*roce.Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			if name == "early drop" {
				n = newFiltered(t)
			}
			c := n.config("10.0.0.1")
			change(&c)
			r := newCrossRigOn(t, n.open(c), managedSend)
			for range 100 {
				bad, err := r.dev.PostTask([]roce.Task{
					{QP: r.qp, Recvs: make([]roce.RecvWR, 2)},
					{QP: r.qp, Sends: emptySends(2)},
					{QP: r.master, Sends: []roce.SendWR{
						r.qp.SendEnableWR(0, 1, 0), r.rcq.WaitWR(1, 1, roce.WaitEnLast),
						r.qp.SendEnableWR(2, 1, 0), r.rcq.WaitWR(3, 1, signaledLast),
					}},
				})
				if err != nil {
					t.Fatalf("task %d: %v", bad, err)
				}
				if wc := ok(r.mcq.Next(patient(t)))(t); wc.ID != 3 || wc.Status != cq.Success {
					t.Fatalf("work request %d: %v", wc.ID, wc.Status)
				}
				if got := len(r.drain(r.rcq)); got != 2 {
					t.Fatalf("%d messages arrived before the end of the list, want 2", got)
				}
				for got := 0; got < 2; {
					if _, err := r.scq.Next(patient(t)); err != nil {
						t.Fatal(err)
					}
					got++
				}
			}
		})
	}
}
