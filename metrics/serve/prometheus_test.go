package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/goroce/roce/link/fault"
)

// started runs serve and returns the address of its metrics.
func started(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, fault.Config{Seed: 1, Tx: fault.Rates{Loss: 0.05}}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// await calls f until it returns nil.
func await(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-again.C:
		}
	}
}

// The parser of Prometheus can read the answers of serve, and the counters grow.
func TestText(t *testing.T) {
	at := started(t)
	await(t, func() error {
		answer, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err := parser.TextToMetricFamilies(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		var again float64
		for _, m := range all["roce_protocol_events_total"].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "retrans_pkts" {
					again += m.GetCounter().GetValue()
				}
			}
		}
		if again == 0 {
			return errors.New("no packet was retransmitted, although packets are lost")
		}
		return nil
	})
}

// Prometheus scrapes serve, and answers every query of the dashboard.
func TestPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed")
	}
	at := runPrometheus(t, program, started(t))
	query := func(expr string) (n int, err error) {
		answer, err := http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(expr))
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		var r struct {
			Error string
			Data  struct{ Result []json.RawMessage }
		}
		if err := json.NewDecoder(answer.Body).Decode(&r); err != nil {
			return 0, err
		}
		if r.Error != "" {
			return 0, fmt.Errorf("%s: %s", expr, r.Error)
		}
		return len(r.Data.Result), nil
	}
	for _, expr := range questions(t) {
		await(t, func() error {
			n, err := query(expr)
			if err == nil && n == 0 {
				err = fmt.Errorf("%s has no answer", expr)
			}
			return err
		})
	}
	await(t, func() error {
		n, err := query(`rate(roce_protocol_events_total{device="client", counter="retrans_pkts"}[30s]) > 0`)
		if err == nil && n != 1 {
			err = errors.New("the client retransmits nothing")
		}
		return err
	})
}

// runPrometheus starts Prometheus with a target to scrape, and returns its address.
func runPrometheus(t *testing.T, program, target string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs: [{job_name: roce, static_configs: [{targets: [%q]}]}]\n", target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at)
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus:\n%s", out.String())
		}
	})
	await(t, func() error {
		answer, err := http.Get("http://" + at + "/-/ready")
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
	return at
}

// questions are the expressions of the dashboard, for all devices.
func questions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../grafana/roce.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "30s")
			// Nothing is connected while Prometheus looks, so no rate of messages is above 0.
			expr = strings.TrimSuffix(expr, " > 0")
			all = append(all, strings.ReplaceAll(expr, "$device", ".*"))
		}
	}
	return all
}
