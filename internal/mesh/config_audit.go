package mesh

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
	"github.com/toolway/toolway/internal/meshapi"
)

// Audit says where the records of calls go.
type Audit struct {
	// File gets a line of JSON for each call: a path, "stdout" or "stderr". Default: none.
	File string `yaml:"file"`
	// Fsync says when the file is forced to the disk: "never", "second" or "always". Default second.
	Fsync string `yaml:"fsync"`
	// Log writes a line for each call to the log too.
	Log bool `yaml:"log"`
	// Keep is how many records are kept in memory for toolway why and toolway audit. Default 1000; 0 keeps none.
	Keep *int `yaml:"keep"`
	// MaxAge and MaxBytes bound the records in the store, where there is one. Default 168h and 1 GiB.
	MaxAge   Duration `yaml:"max_age"`
	MaxBytes int64    `yaml:"max_bytes"`
	// Required refuses calls while records cannot be written.
	Required bool `yaml:"required"`
	// MaxArgumentBytes bounds the arguments in a record. Default 4096; 0 leaves them out, but for their hash.
	MaxArgumentBytes *int `yaml:"max_argument_bytes"`
	// Health records successful health checks too.
	Health bool `yaml:"health"`
}

// standardOutput and standardError are files that are open already.
const (
	standardOutput = "stdout"
	standardError  = "stderr"
)

func (a *Audit) isPath() bool {
	return a.File != "" && a.File != standardOutput && a.File != standardError
}

// normalise fills in defaults and refuses contradictions; stored says that there is a store, which keeps records too.
func (a *Audit) normalise(stored bool) error {
	kinds := []string{string(audit.FsyncNever), string(audit.FsyncSecond), string(audit.FsyncAlways)}
	switch {
	case a.Fsync != "" && !a.isPath():
		return errors.New("audit.fsync is about a file, and audit.file names none: name one, or drop fsync")
	case a.isPath() && a.Fsync == "":
		a.Fsync = string(audit.FsyncSecond)
	case a.Fsync != "" && !slices.Contains(kinds, a.Fsync):
		return fmt.Errorf("audit.fsync %q: want %s%s", a.Fsync, strings.Join(kinds, ", "), meant(a.Fsync, kinds))
	}
	if a.Required && a.File == "" && !stored {
		return errors.New("audit.required refuses calls whose record cannot be kept, and there is nothing that keeps them: name audit.file, or give the mesh a store with data or store.nats, or drop required")
	}
	if (a.MaxAge != 0 || a.MaxBytes != 0) && !stored {
		return errors.New("audit.max_age and max_bytes bound the records in the store, and there is none: give one with data or store.nats, or drop them")
	}
	if a.MaxAge < 0 || a.MaxBytes < 0 {
		return errors.New("audit.max_age and max_bytes: a bound cannot be negative; leave it out for the default")
	}
	if a.Keep == nil {
		n := 1000
		a.Keep = &n
	}
	if *a.Keep < 0 || *a.Keep > 1_000_000 {
		return fmt.Errorf("audit.keep %d: want 0, which keeps none, to 1000000", *a.Keep)
	}
	if n := a.MaxArgumentBytes; n != nil && (*n < 0 || *n > 64<<10) {
		return fmt.Errorf("audit.max_argument_bytes %d: want 0, which leaves arguments out, to 65536", *n)
	}
	return nil
}

// auditing is where records go, of one mesh.
type auditing struct {
	records meshapi.Records // nil: none are kept
	file    *audit.File     // nil: there is no file
}

// openAudit opens the sinks, and returns what the chain is to know of them.
func (m *Mesh) openAudit() (interceptors.AuditOptions, error) {
	a := &m.config.Audit
	o := interceptors.AuditOptions{Required: a.Required, Health: a.Health}
	if n := a.MaxArgumentBytes; n != nil {
		if o.MaxArgumentBytes = *n; *n == 0 {
			o.MaxArgumentBytes = -1
		}
	}
	var sinks []audit.Sink
	switch {
	case a.File == standardOutput:
		sinks = append(sinks, audit.NewWriter(os.Stdout))
	case a.File == standardError:
		sinks = append(sinks, audit.NewWriter(os.Stderr))
	case a.File != "":
		file, err := audit.OpenFile(a.File, audit.Fsync(a.Fsync), m.log)
		if err != nil {
			return o, fmt.Errorf("%w; name another with audit.file", err)
		}
		m.audit.file = file
		sinks = append(sinks, file)
	}
	switch {
	case m.state.audit != nil:
		m.audit.records = m.state.audit
		sinks = append(sinks, m.state.audit)
	case *a.Keep > 0:
		ring := audit.NewRing(*a.Keep)
		m.audit.records = ring
		sinks = append(sinks, ring)
	}
	if a.Log {
		sinks = append(sinks, audit.Log(m.log))
	}
	if len(sinks) > 0 {
		o.Sink = audit.Tee(sinks...)
	}
	return o, nil
}

// Reopen opens the files anew that others rotate: the audit file. The old one stays in use if that fails, which the log tells.
func (m *Mesh) Reopen() {
	if m.audit.file == nil {
		return
	}
	if err := m.audit.file.Reopen(); err != nil {
		m.log.Error("open the audit file anew", "error", err)
		return
	}
	m.log.Info("the audit file was opened anew", "file", m.config.Audit.File)
}

func (a *auditing) close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}
