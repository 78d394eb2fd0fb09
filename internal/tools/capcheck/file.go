package capcheck

import "github.com/goroce/roce/internal/tools/dissect"

// File reads a capture and reports on it.
func File(name string) (*Report, error) {
	r := New(name)
	err := dissect.ReadFile(name, func(p *dissect.Packet) error {
		r.Add(p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Done()
	return r, nil
}
