package verify

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/link/pcap"
)

// links are the link types with which an Ethernet frame can be captured.
var links = []struct {
	name string
	typ  pcap.LinkType
	wrap func(b []byte, d pcap.Direction) []byte
}{
	{"Ethernet", pcap.Ethernet, func(b []byte, _ pcap.Direction) []byte { return b }},
	{"a VLAN", pcap.Ethernet, func(b []byte, _ pcap.Direction) []byte { return slices.Insert(slices.Clone(b), 12, 0x81, 0, 0x20, 7) }},
	{"two VLAN tags", pcap.Ethernet, func(b []byte, _ pcap.Direction) []byte {
		return slices.Insert(slices.Clone(b), 12, 0x88, 0xA8, 0, 9, 0x81, 0, 0x20, 7)
	}},
	{"raw IP", pcap.Raw, func(b []byte, _ pcap.Direction) []byte { return b[14:] }},
	{"loopback of BSD", pcap.Null, func(b []byte, _ pcap.Direction) []byte { return append([]byte{2, 0, 0, 0}, b[14:]...) }},
	{"any", pcap.LinuxSLL, func(b []byte, d pcap.Direction) []byte {
		h := make([]byte, 16)
		if d == pcap.Out {
			h[1] = 4
		}
		copy(h[14:], b[12:14])
		return append(h, b[14:]...)
	}},
	{"any, version 2", pcap.LinuxSLL2, func(b []byte, d pcap.Direction) []byte {
		h := make([]byte, 20)
		copy(h, b[12:14])
		h[7] = 3
		if d == pcap.Out {
			h[10] = 4
		}
		return append(h, b[14:]...)
	}},
}

// recorded returns the scene as records, captured at an end.
func (s *scene) recorded(at int) []pcap.Record {
	s.t.Helper()
	r, err := pcap.NewReader(bytes.NewReader(s.capture(at)))
	if err != nil {
		s.t.Fatal(err)
	}
	var all []pcap.Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			s.t.Fatal(err)
		}
		rec.Data = bytes.Clone(rec.Data)
		all = append(all, rec)
	}
}

// TestFormats: a right scene has no findings and a wrong one has, with every link type and file format, over IPv4 and IPv6.
func TestFormats(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, l := range links {
			for _, format := range []pcap.Format{pcap.Classic, pcap.NG} {
				t.Run(fmt.Sprint(l.name, v6, format), func(t *testing.T) {
					if v6 {
						overIPv6(t)
					}
					for _, wrong := range []bool{false, true} {
						s := rightScene(t)
						if wrong {
							s.step("send-middle").f.Payload = bytesOf(512)
						}
						var b bytes.Buffer
						w := pcap.NewWriter(&b, format, 0)
						if _, err := w.AddInterface(pcap.Interface{LinkType: l.typ}); err != nil {
							t.Fatal(err)
						}
						recs := s.recorded(active)
						for i := range recs {
							rec := recs[i]
							rec.Data, rec.LinkType = l.wrap(rec.Data, rec.Direction), l.typ
							rec.OrigLen = len(rec.Data)
							if err := w.Write(&rec); err != nil {
								t.Fatal(err)
							}
						}
						if err := w.Flush(); err != nil {
							t.Fatal(err)
						}
						r, err := Read(&b, Config{})
						if err != nil || r.Packets != len(recs) {
							t.Fatalf("%d packets of %d: %v", r.Packets, len(recs), err)
						}
						all, byRule := unexplained(r)
						if wrong && (len(byRule) != 1 || byRule[lengthMTU] == 0) || !wrong && len(all) > 0 {
							t.Errorf("wrong: %v, found %v", wrong, all)
						}
					}
				})
			}
		}
	}
}

// TestSnapLength: packets that are cut short are judged as far as they were captured.
func TestSnapLength(t *testing.T) {
	for _, snap := range []int{40, 60, 70, 96, 128, 320, 600} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprint(snap, v6), func(t *testing.T) {
				if v6 {
					overIPv6(t)
				}
				recs := rightScene(t).recorded(active)
				for i := range recs {
					recs[i].OrigLen = len(recs[i].Data)
					recs[i].Data = recs[i].Data[:min(snap, len(recs[i].Data))]
				}
				for _, cfg := range []Config{{}, {Directions: true}} {
					r := judgeRecords(t, recs, cfg, nil)
					complain(t, "cut", r)
					if !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Kind == LimitCut }) {
						t.Error("it is not said that packets are cut")
					}
				}
			})
		}
	}
}

// TestPackedAndCut: a compressed file can be read. If a file ends early, the error says so.
func TestPackedAndCut(t *testing.T) {
	whole := rightScene(t).capture(active)
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	gz.Write(whole)
	gz.Close()
	if r, err := Read(bytes.NewReader(z.Bytes()), Config{}); err != nil || r.Packets < 60 {
		t.Errorf("packed: %d packets, %v", r.Packets, err)
	}
	for name, b := range map[string][]byte{"packed": z.Bytes()[:z.Len()/2], "not packed": whole[:len(whole)/2]} {
		r, err := Read(bytes.NewReader(b), Config{})
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "ends at byte") {
			t.Errorf("%s and cut: error %v", name, err)
		}
		complain(t, name, r)
	}
}

// TestInterfaces: the packets of several interfaces are judged in the order of their times, even if their order in the file differs, as in
// files of dumpcap.
func TestInterfaces(t *testing.T) {
	s := rightScene(t)
	recs := s.recorded(active)
	// The packets of one direction come up to four packets late in the file.
	slices.SortStableFunc(recs, func(a, b pcap.Record) int {
		late := func(r pcap.Record) time.Time {
			if r.Direction == pcap.In {
				return r.Time.Add(90 * time.Microsecond)
			}
			return r.Time
		}
		return late(a).Compare(late(b))
	})
	var b bytes.Buffer
	w := pcap.NewWriter(&b, pcap.NG, 0)
	for range 2 {
		if _, err := w.AddInterface(pcap.Interface{LinkType: pcap.Ethernet}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range recs {
		if recs[i].Direction == pcap.In {
			recs[i].Interface = 1
		}
		if err := w.Write(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	for _, cfg := range []Config{{}, {Complete: true}, {Directions: true}} {
		r, err := Read(bytes.NewReader(b.Bytes()), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if all, _ := unexplained(r); len(all) > 0 {
			t.Errorf("%v", all)
		}
	}
}

// block makes a block of pcapng.
func block(kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	n := uint32(len(body) + 12)
	b := binary.LittleEndian.AppendUint32(nil, kind)
	b = binary.LittleEndian.AppendUint32(b, n)
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, n)
}

// TestStatistics: if the file says that the capture has lost packets, the capture does not count as complete.
func TestStatistics(t *testing.T) {
	for _, lost := range []byte{0, 3} {
		s := rightScene(t)
		s.step("silent").lost = false
		s.drop("behind") // a gap where the requester sends
		b := s.capture(active)
		body := make([]byte, 12)                                               // interface 0, at time 0
		body = append(body, 5, 0, 8, 0, lost, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // isb_ifdrop
		b = append(b, block(5, body)...)
		r, err := Read(bytes.NewReader(b), Config{Directions: true})
		if err != nil {
			t.Fatal(err)
		}
		_, byRule := unexplained(r)
		if found := byRule[psnGap] > 0; found != (lost == 0) {
			t.Errorf("%d packets are lost by the capture: found %v", lost, byRule)
		}
		if said := slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Kind == LimitDropped }); said != (lost > 0) {
			t.Errorf("%d packets are lost by the capture: limits %+v", lost, r.Limits)
		}
	}
}

// TestNoTimes: simple packet blocks have no times. Rules about times cannot be applied.
func TestNoTimes(t *testing.T) {
	for _, cfg := range []Config{{}, {Directions: true}, {Complete: true}} {
		recs := rightScene(t).recorded(active)
		for i := range recs {
			recs[i].Time = time.Time{}
		}
		r := judgeRecords(t, recs, cfg, nil)
		if all, _ := unexplained(r); len(all) > 0 {
			t.Errorf("%v", all)
		}
		if !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Kind == LimitTime }) {
			t.Error("it is not said that there are no times")
		}
	}
}
