// Command serve shows the metrics of two devices. They are in this process: the client writes into the
// memory of the server a thousand times a second, over a wire that loses packets.
//
//	go run -C metrics ./serve -listen 127.0.0.1:9464 -loss 1%
//	curl http://127.0.0.1:9464/metrics
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/metrics"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "serve /metrics at this `address:port`")
	var faults fault.Config
	faults.RegisterFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("http://%v/metrics", l.Addr())
	if err := serve(ctx, l, faults); err != nil {
		log.Fatal(err)
	}
}

// serve answers scrapes at l until ctx ends, while the devices work.
func serve(ctx context.Context, l net.Listener, faults fault.Config) error {
	hub := mem.NewHub(mem.Config{MTU: 4200})
	server, err := open(hub, "10.0.0.1", fault.Config{})
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := open(hub, "10.0.0.2", faults)
	if err != nil {
		return err
	}
	defer client.Close()

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector("server", server), metrics.NewCollector("client", client))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer web.Close()
	failed := make(chan error, 2)
	go func() { failed <- web.Serve(l) }()
	go func() { failed <- work(ctx, server, client) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// open attaches a device to the hub.
func open(hub *mem.Hub, addr string, faults fault.Config) (*roce.Device, error) {
	ip := netip.MustParseAddr(addr)
	port, err := hub.Port(addr, roce.DerivedMAC(ip))
	if err != nil {
		return nil, err
	}
	wire, err := fault.Wrap(port, faults)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return roce.Open(roce.Config{Ports: []link.Port{wire}, Addrs: []netip.Addr{ip}})
}

// work makes the client write into the server's memory until ctx ends.
func work(ctx context.Context, server, client *roce.Device) error {
	pd := server.AllocPD()
	shared, err := pd.RegMR(make([]byte, 16<<10), roce.LocalWrite|roce.RemoteWrite)
	if err != nil {
		return err
	}
	listener, err := server.Listen(ctx, "10.0.0.1:7471", roce.ListenConfig{})
	if err != nil {
		return err
	}
	accepted := make(chan error, 1)
	go func() {
		request, err := listener.Accept(ctx)
		if err == nil {
			_, err = request.Accept(ctx, roce.AcceptConfig{PD: pd})
		}
		accepted <- err
	}()
	conn, err := client.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := <-accepted; err != nil {
		return err
	}
	local, err := conn.RegMR(make([]byte, 16<<10), roce.LocalWrite)
	if err != nil {
		return err
	}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
		err := conn.QP().PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{local.SGE(0, 16<<10)},
			RemoteAddr: shared.Addr(), RKey: shared.RKey()})
		if err != nil {
			return err
		}
		if _, err := conn.QP().SendCQ().Next(ctx); err != nil {
			return err
		}
	}
}
