package mesh

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Approvals are the calls that are held until somebody agrees to them.
type Approvals struct {
	// URL is where the HTTP door can be reached from outside: callers of held calls are told URL/v1/approvals/ID. Default: http:// and the
	// address of the HTTP door, if it listens on a loopback address; else callers are told no URL.
	URL string `yaml:"url"`
	// Pending is how long a held call waits for a decision. Default 15m.
	Pending Duration `yaml:"pending"`
	// Use is how long an approved call may be made. Default 5m.
	Use Duration `yaml:"use"`
	// Max bounds the calls that are held; one caller gets a tenth. Default 10,000.
	Max int `yaml:"max"`
	// Self lets callers on this machine decide about their own calls where nobody is authenticated. Default true.
	Self *bool `yaml:"self"`
}

func (a *Approvals) normalise(httpAddr string) error {
	if a.Max < 0 {
		return errors.New("approvals.max: a limit cannot be negative; leave it out for the default")
	}
	if a.Max == 0 {
		a.Max = 10_000
	}
	if a.Pending == 0 {
		a.Pending = Duration(15 * time.Minute)
	}
	if a.Use == 0 {
		a.Use = Duration(5 * time.Minute)
	}
	if a.Self == nil {
		yes := true
		a.Self = &yes
	}
	if a.URL == "" {
		if httpAddr != Off && loopback(httpAddr) && !strings.HasSuffix(httpAddr, ":0") {
			a.URL = "http://" + httpAddr
		}
		return nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf(`approvals.url %q is no address of the HTTP door: write it as "https://mesh.example.com"`, a.URL)
	}
	return nil
}
