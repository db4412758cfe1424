package mesh_test

import (
	"strings"
	"testing"
)

// TestConfigOfResults has the blocks that shape what callers get.
func TestConfigOfResults(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"cache", "cache: {max_bytes: 1048576, stale: 10m}\n", ""},
		{"cache off", "cache: {off: true}\n", ""},
		{"cache off and on", "cache: {off: true, stale: 1m}\n", "cache.off is set beside other keys of cache: drop the one or the others"},
		{"cache below its replies", "cache: {max_bytes: 10, max_reply_bytes: 20}\n", "cache.max_reply_bytes is above cache.max_bytes: lower the one or raise the other"},
		{"cache below zero", "cache: {max_bytes: -1}\n", "a limit cannot be negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := load(t, c.yaml)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // a normalised configuration stays as it is
				err = conf.Normalise()
				if c.want == "" && err != nil {
					t.Error(err)
				}
				if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("Normalise = %v, want %q", err, c.want)
				}
			}
		})
	}
}
