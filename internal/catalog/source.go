package catalog

import "context"

// Source is where a backend's descriptors or its health come from. The package's own constructors return them: Reflection, Connection, File,
// CompiledIn. A Source serves one Open.
type Source interface {
	// start returns what can be known without waiting.
	start() (report, error)
	// run reports changes until ctx ends. Each report replaces the one before.
	run(ctx context.Context, report func(report))
}

// report is what a source knows.
type report struct {
	// files are the descriptors; nil means that none are known.
	files []rawFile
	// only are the services to serve of files; nil means all.
	only []string
	// findings are about the source itself.
	findings []Finding
	// state counts if watched.
	state   State
	watched bool
	// settled means that the source has had its say: files or a failure.
	settled bool
	// joins sources are read as one when one of them leads.
	joins bool
	// fallback sources lead only while no other has files, and give nothing to those that do.
	fallback bool
	// trusted sources may bring reserved services.
	trusted bool
	// rev changes when files or only do.
	rev int
}
