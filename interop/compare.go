//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// compared runs cmtime three times with the same number of connections: rxe with
// itself inside the guest, then rxe and our side in both roles. It notes the
// connections per second of each run.
func (r *caseRun) compared() error {
	sides := r.sides
	linux, own := sides[r.linux], sides[1-r.linux]
	var rates []string
	for _, pair := range [][2]endpoint{{linux, linux}, {linux, own}, {own, linux}} {
		r.sides = pair
		r.bed.port++
		p := r.par
		p.port = r.bed.port
		rate, err := r.timed(p)
		if err != nil {
			return fmt.Errorf("%s connects to %s: %w", name(pair[client]), name(pair[server]), err)
		}
		rates = append(rates, fmt.Sprintf("%s to %s %s", name(pair[client]), name(pair[server]), rate))
	}
	r.sides = sides
	r.notes = append(r.notes, fmt.Sprintf("%d connections at once, /s made and ended: %s", r.par.conns, strings.Join(rates, "; ")))
	return nil
}

// name returns the name of a side in the note.
func name(e endpoint) string {
	if _, ok := e.(*guest); ok {
		return "rxe"
	}
	return "roce"
}

// timed runs the tool once and returns how many connections were made, and ended, in
// a second.
func (r *caseRun) timed(p params) (rate string, err error) {
	if _, err := r.listen(p); err != nil {
		return "", err
	}
	cl, err := r.start(client, p)
	if err != nil {
		return "", err
	}
	if err := r.succeeded(cl); err != nil {
		return "", err
	}
	if rate, err = perSecond(cl.Output(), p.conns); err != nil {
		return "", err
	}
	return rate, r.killAll()
}

// stepTime matches the time that a step of cmtime took for all connections.
var stepTime = regexp.MustCompile(`(?m)^(connect|disconnect) *: +([0-9.]+)`)

// perSecond reads cmtime's table.
func perSecond(out string, conns int) (string, error) {
	rate := map[string]float64{}
	for _, m := range stepTime.FindAllStringSubmatch(out, -1) {
		if ms, err := strconv.ParseFloat(m[2], 64); err == nil && ms > 0 {
			rate[m[1]] = float64(conns) / ms * 1000
		}
	}
	if len(rate) != 2 {
		return "", fmt.Errorf("no times of connect and disconnect in %q", out)
	}
	return fmt.Sprintf("%.0f/%.0f", rate["connect"], rate["disconnect"]), nil
}
