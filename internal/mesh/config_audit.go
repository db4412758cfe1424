package mesh

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/toolway/toolway/interceptors"
	"github.com/toolway/toolway/internal/audit"
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

func (a *Audit) normalise() error {
	kinds := []string{string(audit.FsyncNever), string(audit.FsyncSecond), string(audit.FsyncAlways)}
	switch {
	case a.Fsync != "" && !a.isPath():
		return errors.New("audit.fsync is about a file, and audit.file names none: name one, or drop fsync")
	case a.isPath() && a.Fsync == "":
		a.Fsync = string(audit.FsyncSecond)
	case a.Fsync != "" && !slices.Contains(kinds, a.Fsync):
		return fmt.Errorf("audit.fsync %q: want %s%s", a.Fsync, strings.Join(kinds, ", "), meant(a.Fsync, kinds))
	}
	if a.Required && a.File == "" {
		return errors.New("audit.required refuses calls that no file would have, and audit.file names none: name one, or drop required")
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
	ring *audit.Ring // nil: none is kept
	file *audit.File // nil: there is no file
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
	if *a.Keep > 0 {
		m.audit.ring = audit.NewRing(*a.Keep)
		sinks = append(sinks, m.audit.ring)
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
