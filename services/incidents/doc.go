// Package incidents is a tool backend: agentops.incidents.v1.IncidentService, a workflow that diagnoses incidents with other tools.
//
// It is an ordinary gRPC server, and a client of the mesh: every tool that it uses is called through the mesh's gRPC door, with rights of its own. What comes
// next in a diagnosis is the word of a [Planner]; [Rules] is the one that needs no model. What is done about it (calls, waiting for approval, what is recorded
// when, cancelling, going on after a kill) is this package's, whoever plans.
//
//	server.go, watch.go   the five calls
//	planner.go            what a planner is told and may answer
//	rules.go, weigh.go    the planner without a model
//	run.go, step.go       one diagnosis from its start, or from where it was left, to its end
//	action.go             the one step that changes something
//	tools.go, trace.go    the tools, and the trace that their calls belong to
//	store.go              diagnoses, steps and events in SQLite
package incidents
