package tcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

// IPerf measures one TCP connection by iperf3 between the two sides, for whole seconds. start
// starts the process of a side. Only received payload counts.
func IPerf(ctx context.Context, start func(side int, cmd *exec.Cmd) error, server string, d time.Duration) (m harness.Measure, err error) {
	seconds := max(int(d.Round(time.Second)/time.Second), 1)
	ctx, stop := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+10*time.Second)
	defer stop()
	s := exec.CommandContext(ctx, "iperf3", "-s", "-1", "-4", "-B", server, "--idle-timeout", "15", "--forceflush")
	out, err := s.StdoutPipe()
	if err != nil {
		return m, err
	}
	if err := start(1, s); err != nil {
		return m, fmt.Errorf("iperf3: %w", err)
	}
	defer s.Wait()
	defer s.Process.Kill()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening") {
	}
	if err := lines.Err(); err != nil {
		return m, fmt.Errorf("iperf3: %w", err)
	}
	var report, trouble bytes.Buffer
	c := exec.CommandContext(ctx, "iperf3", "-c", server, "-t", strconv.Itoa(seconds), "-J")
	c.Stdout, c.Stderr = &report, &trouble
	if err := start(0, c); err != nil {
		return m, fmt.Errorf("iperf3: %w", err)
	}
	if err := c.Wait(); err != nil {
		return m, fmt.Errorf("iperf3: %w: %s", err, trouble.String()+report.String())
	}
	return parseIPerf(report.Bytes())
}

// parseIPerf parses the output of iperf3 -J.
func parseIPerf(b []byte) (m harness.Measure, err error) {
	var r struct {
		Error string
		End   struct {
			Received struct {
				Seconds float64
				Bytes   uint64
			} `json:"sum_received"`
			Sent struct {
				Retransmits uint64
			} `json:"sum_sent"`
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return m, fmt.Errorf("iperf3's report: %w", err)
	}
	if r.Error != "" {
		return m, fmt.Errorf("iperf3: %s", r.Error)
	}
	if r.End.Received.Seconds <= 0 || r.End.Received.Bytes == 0 {
		return m, fmt.Errorf("iperf3's report says nothing of what was received")
	}
	return harness.Measure{Seconds: r.End.Received.Seconds, Bytes: r.End.Received.Bytes, Retrans: r.End.Sent.Retransmits, Mode: "iperf3"}, nil
}
