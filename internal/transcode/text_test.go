package transcode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

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

// TestStringRead reads strings of all lengths around those that are copied while they are read, with every kind of byte in them, into a
// buffer with room and one without.
func TestStringRead(t *testing.T) {
	set := compileProto(t, logProto)
	m := set.codec.Message(set.message(t, "bench.Small"))
	rest := `,"customerNote":"` + strings.Repeat("z", 200) + `"}`
	for size := range 140 {
		for at := 0; at <= size; at += 1 + size/20 {
			for _, in := range []string{"", "a", `\"`, `\\`, `\n`, `\u00e9`, "é", "\x00", "\x1f", " ", "\x7f", "\xff", "\xc3", `\ud83d\ude00`, `\ud83d`} {
				s := `"` + strings.Repeat("b", at) + in + strings.Repeat("c", size-at) + `"`
				var want string
				ok := utf8.ValidString(s) && !strings.HasSuffix(in, `\ud83d`) && json.Unmarshal([]byte(s), &want) == nil
				for _, src := range []string{`{"orderId":` + s + rest, `{"orderId":` + s + `}`} {
					wire, err := m.AppendWire(make([]byte, 0, 1000), []byte(src), transcode.ReadOptions{})
					exact, exactErr := m.AppendWire(nil, []byte(src), transcode.ReadOptions{})
					if (err == nil) != ok || fmt.Sprint(err) != fmt.Sprint(exactErr) || !bytes.Equal(wire, exact) {
						t.Fatalf("AppendWire(%s) = %x, %v, without room %x, %v, want success %t", src, wire, err, exact, exactErr, ok)
					}
					if !ok || want == "" {
						continue
					}
					if got, n := protowire.ConsumeString(wire[1:]); n < 0 || got != want {
						t.Fatalf("AppendWire(%s) has %q, want %q", src, got, want)
					}
				}
			}
		}
	}
}

// TestIntegerRead reads numbers in all their forms, before whatever may follow them.
func TestIntegerRead(t *testing.T) {
	set := compileProto(t, scalarProto+"message L { repeated int32 i32 = 1; repeated sint64 s64 = 2; repeated double d = 3; }\n")
	md := set.message(t, "test.In")
	texts := []string{"", "0", "00", "-0", "-", "1", "-1", "01", "1.0", "1.5", "1e2", "1 ", "\n1", "1x", "x", "127", "128", "2147483647", "2147483648", "-2147483648",
		"4294967295", "4294967296", "999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808", "18446744073709551615",
		"18446744073709551616", "1" + strings.Repeat("0", 30), "0." + strings.Repeat("0", 30)}
	for _, field := range []string{"f", "d", "i32", "i64", "u32", "u64", "s32", "s64", "f32", "f64", "sf32", "sf64", "e"} {
		for _, text := range texts {
			for _, text := range []string{text, `"` + text + `"`, `"` + text, text + `"`} {
				for _, end := range []string{"}", " }", `,"s":""}`, "", "]", ","} {
					agreeWire(t, set, md, []byte(`{"`+field+`":`+text+end), transcode.ReadOptions{})
				}
			}
		}
	}
	md = set.message(t, "test.L")
	for _, field := range []string{"i32", "s64", "d"} {
		for _, text := range texts {
			for _, end := range []string{"]}", ",7]}", " , 7]}", "}", ""} {
				agreeWire(t, set, md, []byte(`{"`+field+`":[`+text+end), transcode.ReadOptions{})
				agreeWire(t, set, md, []byte(`{"`+field+`":["`+text+`"`+end), transcode.ReadOptions{})
			}
		}
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
