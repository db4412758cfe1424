package metrics

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Limits of one series on a page.
const (
	maxLabels     = 64
	maxLabelBytes = 4 << 10
)

// exposed is one sample on a page. It is good until the callback returns.
type exposed struct {
	text   []byte // the series as it stands on the page
	time   *int64 // nil: the time of the scrape
	value  float64
	labels func() labels.Labels
}

// parsePage calls each for every sample of a page in Prometheus' text format or OpenMetrics 1.0; other formats, with native histograms among
// them, are refused.
func parsePage(body []byte, contentType string, each func(exposed) error) (err error) {
	mediaType, params, err := mime.ParseMediaType(cmp.Or(contentType, "text/plain"))
	if err != nil {
		return fmt.Errorf("read Content-Type %q: %w", cut(contentType, 100), err)
	}
	if mediaType != "text/plain" && mediaType != "application/openmetrics-text" || mediaType == "application/openmetrics-text" && params["version"] == "2.0.0" {
		return fmt.Errorf("page is %q; only Prometheus' text format and OpenMetrics 1.0 are read, not those with native histograms", cut(contentType, 100))
	}
	if at := bytes.IndexByte(body, 0); at >= 0 { // the parser would take it for the end of the page
		return fmt.Errorf("page is no text: it has a NUL at byte %d", at)
	}
	// The page comes from outside, and this is not the goroutine of a call: a bug of the parser must not end the process.
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("page is not understood")
		}
	}()
	parser, err := textparse.New(body, cmp.Or(contentType, "text/plain"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if parser == nil {
		return fmt.Errorf("read page: %w", err)
	}
	for {
		entry, err := parser.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read page: %s", cut(err.Error(), 500))
		case entry == textparse.EntryHistogram:
			return errors.New("page has native histograms, which are not kept here; expose classic ones")
		case entry != textparse.EntrySeries:
			continue
		}
		text, at, v := parser.Series()
		err = each(exposed{text: text, time: at, value: v, labels: func() labels.Labels {
			var l labels.Labels
			parser.Labels(&l)
			return l
		}})
		if err != nil {
			return err
		}
	}
}

// checkLabels refuses a series that would take too much room, or cannot be told from others.
func checkLabels(l labels.Labels) error {
	text := cut(l.String(), 200)
	switch {
	case !l.Has(model.MetricNameLabel):
		return fmt.Errorf("series %s has no name", text)
	case !l.IsValid(model.UTF8Validation):
		return fmt.Errorf("series %s has a label whose name or value is not valid UTF-8", text)
	case l.Len() > maxLabels:
		return fmt.Errorf("series %s has %d labels; at most %d are kept", text, l.Len(), maxLabels)
	case l.ByteSize() > maxLabelBytes:
		return fmt.Errorf("series %s has %d bytes of labels; at most %d are kept", text, l.ByteSize(), maxLabelBytes)
	}
	if name, twice := l.HasDuplicateLabelNames(); twice {
		return fmt.Errorf("series %s has the label %q twice", text, name)
	}
	return nil
}
