package metrics

import (
	"encoding/json"
	"time"
)

// Import stores a page of samples with timestamps of their own, as if they had been scraped; the engine then knows of since and all after it.
func (e *Embedded) Import(openmetrics []byte, since time.Time) (stored int, err error) {
	var rows []row
	err = parsePage(openmetrics, "application/openmetrics-text; version=1.0.0", func(x exposed) error {
		rows = append(rows, row{labels: x.labels(), Sample: Sample{Time: *x.time, Value: x.value}})
		return nil
	})
	if err != nil {
		return 0, err
	}
	e.store.mu.Lock()
	e.store.start = since.UnixMilli()
	e.store.mu.Unlock()
	dropped, err := e.store.commit(0, rows)
	return len(rows) - dropped, err
}

// Held is how many samples and series the store has.
func (e *Embedded) Held() (samples, series int) {
	e.store.mu.RLock()
	defer e.store.mu.RUnlock()
	counted := 0
	for _, same := range e.store.byName {
		for _, m := range same {
			for _, b := range m.blocks {
				counted += len(b)
			}
		}
	}
	if counted != e.store.samples {
		panic("store has counted wrong")
	}
	return e.store.samples, e.store.series
}

// CursorAt is the cursor of a message for an instant.
func CursorAt(t time.Time) string { return cursor(t.UnixMilli()).String() }

// CursorTime is what a cursor says.
func CursorTime(s string) (time.Time, error) {
	c, err := parseCursor(s)
	return c.time(), err
}

var (
	ParsePage = func(body []byte, contentType string) error {
		return parsePage(body, contentType, func(x exposed) error { return checkLabels(x.labels()) })
	}
	ParsePageToken = func(s string) (string, error) {
		t, err := parsePageToken(s)
		return t.String(), err
	}
	ShapeOf = func(query string) (sorted bool, window time.Duration) {
		s := shapeOf(query)
		return s.sorted, s.window
	}
)

// ReadAnswer reads the data of an answer of the HTTP API.
func ReadAnswer(b []byte) (*Answer, error) {
	var data remoteData
	if err := json.Unmarshal(b, &data); err != nil {
		return nil, err
	}
	return data.answer()
}
