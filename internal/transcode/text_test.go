package transcode_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolway/toolway/internal/transcode"
)

// TestStringText escapes every byte at every place of strings of all lengths that are looked at in another way.
func TestStringText(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for size := range 27 {
		for at := range max(1, size) {
			for c := range 256 {
				s := []byte(letters[:size])
				if size > 0 {
					s[at] = byte(c)
				}
				checkString(t, s)
				checkString(t, append(s, "é\x00\"z"...))
			}
		}
	}
}

func checkString(t *testing.T, s []byte) {
	t.Helper()
	const before = "before"
	got, ok := transcode.AppendString(append(make([]byte, 0, len(before)), before...), s)
	if !ok {
		if utf8.Valid(s) {
			t.Fatalf("appendString(%q) failed", s)
		}
		return
	}
	if want := before + stringText(s); string(got) != want || !utf8.Valid(s) {
		t.Fatalf("appendString(%q) = %s, want %s", s, got, want)
	}
	var back string
	if err := json.Unmarshal(got[len(before):], &back); err != nil || back != string(s) {
		t.Fatalf("appendString(%q) = %s, which means %q, %v", s, got, back, err)
	}
}

// stringText is what appendString does, one byte after the other.
func stringText(s []byte) string {
	short := map[byte]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		if text, ok := short[c]; ok {
			b.WriteString(text)
		} else if c < 0x20 {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// TestTimestampText writes all days of the years 1 to 9999.
func TestTimestampText(t *testing.T) {
	nanos := []int32{0, 1, 120_000_000, 999_999_000, 999_999_999, 3_000}
	day, step := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), 1
	if raceEnabled {
		step = 37 // it takes long
	}
	for i := 0; day.Year() < 10000; i++ {
		at := day.Add(time.Duration(i%86400) * time.Second)
		n := nanos[i%len(nanos)]
		digits := []string{"", ".000000000", ".000", ".000000", ".000000000", ".000000"}[i%len(nanos)]
		want := at.Add(time.Duration(n)).Format(`"2006-01-02T15:04:05` + digits + `Z"`)
		if got := transcode.AppendTimestamp(nil, at.Unix(), n); string(got) != want {
			t.Fatalf("appendTimestamp(%d, %d) = %s, want %s", at.Unix(), n, got, want)
		}
		day = day.AddDate(0, 0, step)
	}
}
