package logs

import (
	"context"
	"errors"
	"slices"
	"time"
)

// maxTies is how many matching entries may share one time to the nanosecond: they are sorted in memory.
const (
	maxTies      = 10_000
	maxTiesBytes = 64 << 20
)

// errTies says that entries cannot be put in a total order within bounds.
var errTies = errors.New("over 10000 matching entries share one time to the nanosecond; narrow the query")

// selector is the part of an [Engine] that pages are cut from.
type selector interface {
	Select(ctx context.Context, s Selection) (entries []Entry, more bool, err error)
}

// page returns the entries of s that follow after (or the first ones when after is nil) in the total order of keys, and
// whether there are more. The engine sorts by time only; entries of one time are fetched whole and put in order here, so that
// pages neither overlap nor leave a gap, whatever order the engine has for them.
func page(ctx context.Context, engine selector, s Selection, after *key) (entries []Entry, more bool, err error) {
	compare := func(a, b key) int { return a.compare(b) }
	if s.NewestFirst {
		compare = func(a, b key) int { return b.compare(a) }
	}
	sorted := func(entries []Entry) {
		slices.SortFunc(entries, func(a, b Entry) int { return compare(a.key(), b.key()) })
	}
	if after != nil {
		at := time.Unix(0, after.time)
		entries, err = ties(ctx, engine, s, at)
		if err != nil {
			return nil, false, err
		}
		entries = slices.DeleteFunc(entries, func(e Entry) bool { return compare(e.key(), *after) <= 0 })
		sorted(entries)
		if s.NewestFirst {
			s.End = at
		} else {
			s.Start = at.Add(1)
		}
	}
	if len(entries) <= s.Limit && s.Start.Before(s.End) {
		found, cut, err := nearest(ctx, engine, s)
		if err != nil {
			return nil, false, err
		}
		if cut {
			at := found[len(found)-1].Time
			whole, err := ties(ctx, engine, s, at)
			if err != nil {
				return nil, false, err
			}
			found = append(slices.DeleteFunc(found, func(e Entry) bool { return e.Time.Equal(at) }), whole...)
			more = true
		}
		sorted(found)
		entries = append(entries, found...)
	}
	n, bytes := 0, 0
	for n < min(len(entries), s.Limit) {
		bytes += entries[n].size()
		if bytes > s.MaxBytes && n > 0 {
			break
		}
		n++
	}
	return entries[:n], more || n < len(entries), nil
}

// The windows in which a selection is tried: a page seldom needs the whole range, and the engine reads what it is asked for.
const (
	firstWindow  = time.Minute
	windowGrowth = 8
)

// nearest is Select, but looks at the near end of the range first.
func nearest(ctx context.Context, engine selector, s Selection) (entries []Entry, more bool, err error) {
	for window, bytes := firstWindow, 0; ; window *= windowGrowth {
		part := s
		whole := s.End.Sub(s.Start) <= window
		switch {
		case whole:
		case s.NewestFirst:
			part.Start = s.End.Add(-window)
			s.End = part.Start
		default:
			part.End = s.Start.Add(window)
			s.Start = part.End
		}
		// A full page still asks for one entry more, to tell whether there is one.
		room := s.Limit - len(entries)
		part.Limit, part.MaxBytes = max(room, 1), max(s.MaxBytes-bytes, 1)
		found, cut, err := engine.Select(ctx, part)
		if err != nil {
			return nil, false, err
		}
		if room == 0 && len(found) > 0 {
			return entries, true, nil
		}
		entries = append(entries, found...)
		if cut || whole {
			return entries, cut, nil
		}
		for _, entry := range found {
			bytes += entry.size()
		}
	}
}

// ties returns every entry of s with exactly this time.
func ties(ctx context.Context, engine selector, s Selection, at time.Time) ([]Entry, error) {
	s.Start, s.End, s.Limit, s.MaxBytes = at, at.Add(1), maxTies, maxTiesBytes
	entries, more, err := engine.Select(ctx, s)
	if err == nil && more {
		err = errTies
	}
	return entries, err
}
