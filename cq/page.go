package cq

// pages is the memory of a queue. The queue allocates a page when its length first needs
// it: most queues of a server with many connections have a large capacity and stay short.
//
// The producer calls pageFor, the consumer copy. The atomics that order entries (see Publish and
// Poll) also order their pages.
type pages struct {
	table  []*page // by number; the length is a power of two
	oldest uint64  // number of the oldest page there is
}

// pageLen is the number of entries of a page: 1.5 KiB.
const pageLen = 32

type page [pageLen]WC

// newPages makes the pages of a queue for size entries, which is 2^k.
func newPages(size uint32) pages {
	// One more than the full pages: the entries may begin and end in the middle
	// of a page.
	return pages{table: make([]*page, max(2*size/pageLen, 2))}
}

func (p *pages) slot(number uint64) **page { return &p.table[number&uint64(len(p.table)-1)] }

// at returns entry i, which must have been pushed.
func (p *pages) at(i uint64) *WC { return &(*p.slot(i / pageLen))[i%pageLen] }

// pageFor returns the page for entry i, its first entry. Poll has returned the entries before
// head: if they include the whole oldest page, pageFor uses that page again, otherwise it
// allocates one.
func (p *pages) pageFor(i, head uint64) *page {
	number := i / pageLen
	var fresh *page
	if old := p.slot(p.oldest); p.oldest < head/pageLen && *old != nil {
		fresh, *old = *old, nil
		p.oldest++
	} else {
		fresh = new(page)
	}
	if *p.slot(p.oldest) == nil {
		p.oldest = number // it is the only one
	}
	*p.slot(number) = fresh
	return fresh
}

// copy fills dst with the entries from i on.
func (p *pages) copy(dst []WC, i uint64) {
	for len(dst) > 0 {
		n := copy(dst, (*p.slot(i / pageLen))[i%pageLen:])
		dst, i = dst[n:], i+uint64(n)
	}
}
