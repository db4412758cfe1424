package conformance_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// exception is a scenario that is not passed, and why.
type exception struct {
	// legs say where; a field that is "" stands for all.
	leg
	scenarios []string
	reason    string
}

const (
	old       = "it speaks version 2025-03-26 in raw requests, which the mesh refuses"
	schemas   = "it wants a tool with one fixed JSON Schema, with root combinators that a message has not and that model providers refuse; not scored by the suite"
	headers   = "it wants a tool with x-mcp-header, which servers need not offer and contracts cannot say; not scored by the suite"
	noSession = "without a session an older client cannot be asked or told anything; with sessions it passes"
	inTask    = "it wants a tool to ask before its call becomes a task; here a call becomes a task before its backend has it, and the task asks, as tasks-mrtr-input has it. The specification has a SHOULD for it"
	uncut     = "it wants its stream to be cut off; with mcp.stream_age it passes"
)

// exceptions are all of them.
var exceptions = []exception{
	{leg{line: "0.1"}, []string{"server-sse-polling", "server-sse-multiple-streams"}, old},
	{leg{}, []string{"json-schema-2020-12"}, schemas},
	{leg{version: "2026-07-28"}, []string{"http-custom-header-server-validation"}, headers},
	{leg{mesh: "default"}, []string{"logging-set-level", "tools-call-with-logging", "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums", "resources-subscribe", "resources-unsubscribe"}, noSession},
	{leg{line: "0.2", mesh: "default"}, []string{"server-sse-polling"}, uncut},
	{leg{line: "0.2", mesh: "sessions"}, []string{"server-sse-polling"}, uncut},
	{leg{mesh: "tasks"}, []string{"tasks-mrtr-composition"}, inTask},
}

func (l leg) exception(scenario string) (reason string, ok bool) {
	for _, e := range exceptions {
		fits := (e.line == "" || e.line == l.line) && (e.version == "" || e.version == l.version) && (e.mesh == "" || e.mesh == l.mesh)
		if fits && slices.Contains(e.scenarios, scenario) {
			return e.reason, true
		}
	}
	return "", false
}

// report is docs/conformance.md.
func report(results []map[string]*outcome) []byte {
	var b bytes.Buffer
	b.WriteString(`# MCP conformance

Made by ` + "`make mcp-conformance`" + `: both release lines of the official suite (npm ` + "`@modelcontextprotocol/conformance`" + `, pinned in
[tests/conformance](../tests/conformance/package.json)), every scenario for servers, against the built binary in front of a gRPC backend that knows
only contracts ([its proto](../tests/proto/conformance/v1/conformance.proto)). The same runs in ` + "`make test`" + `, where anything but the exceptions below fails.

A scenario counts as passed if at least one of its checks has passed and none has failed or warned; one without a check has not passed.

| suite | version | mesh | scenarios passed | checks passed | failed | warned | skipped |
|---|---|---|---|---|---|---|---|
`)
	for i, l := range legs {
		passed, sum := 0, outcome{}
		for _, o := range results[i] {
			if o.ok() {
				passed++
			}
			sum.passed, sum.failed, sum.warned, sum.skipped = sum.passed+o.passed, sum.failed+o.failed, sum.warned+o.warned, sum.skipped+o.skipped
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d of %d | %d | %d | %d | %d |\n", l.line, l.version, l.mesh, passed, len(results[i]), sum.passed, sum.failed, sum.warned, sum.skipped)
	}
	b.WriteString("\nThe mesh is as it is by default, or with `mcp: {sessions: true}` (\"sessions\"), or also with `stream_age` (\"ages\", for the one scenario that wants to be cut off),\n" +
		"or with `--data` (\"tasks\", for the scenarios of the extension for tasks, which belong to no version; of these `tasks-status-notifications` has no check and is not run).\n" +
		"2025-03-26 and older versions are refused by design. Scenarios of other extensions are not run.\n\n## Exceptions\n\n| suite | version | mesh | scenario | reason |\n|---|---|---|---|---|\n")
	for i, l := range legs {
		for _, name := range slices.Sorted(maps.Keys(results[i])) {
			if reason, ok := l.exception(name); ok {
				fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s |\n", l.line, l.version, l.mesh, name, reason)
			}
		}
	}
	return b.Bytes()
}
