package rdmacm

// Remembered returns how many identifiers and ports the host knows.
func (h *Host) Remembered() (ids, ports int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ids), len(h.ports)
}
