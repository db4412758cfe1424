package mcpadapter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// logLevels are MCP's names for the levels, from the least serious.
var logLevels = [...]mcp.LoggingLevel{
	toolwayv1.LogLevel_LOG_LEVEL_DEBUG: "debug", toolwayv1.LogLevel_LOG_LEVEL_INFO: "info", toolwayv1.LogLevel_LOG_LEVEL_NOTICE: "notice",
	toolwayv1.LogLevel_LOG_LEVEL_WARNING: "warning", toolwayv1.LogLevel_LOG_LEVEL_ERROR: "error", toolwayv1.LogLevel_LOG_LEVEL_CRITICAL: "critical",
	toolwayv1.LogLevel_LOG_LEVEL_ALERT: "alert", toolwayv1.LogLevel_LOG_LEVEL_EMERGENCY: "emergency",
}

// logLevel returns the level of that name, or 0.
func logLevel(name string) toolwayv1.LogLevel {
	for i, l := range logLevels {
		if name != "" && string(l) == name {
			return toolwayv1.LogLevel(i)
		}
	}
	return 0
}

// logSink is where the log messages of a call go: to a client that asked for them. A nil *logSink takes them and does nothing.
type logSink struct {
	// from is the least serious level that the client wants.
	from toolwayv1.LogLevel
	// send sends the params of one notifications/message: its members in the order in which the SDK writes them.
	send func(data []byte, level mcp.LoggingLevel, logger string)
}

// message passes on what a backend says.
func (s *logSink) message(m *toolwayv1.LogMessage) {
	if s == nil {
		return
	}
	level := m.GetLevel()
	if level <= 0 || int(level) >= len(logLevels) {
		level = toolwayv1.LogLevel_LOG_LEVEL_INFO
	}
	if level < s.from {
		return
	}
	s.send(logData(m), logLevels[level], m.GetLogger())
}

// logData is what a notification carries: the text alone, or an object with the text and what goes with it.
func logData(m *toolwayv1.LogMessage) []byte {
	if len(m.GetFields().GetFields()) == 0 {
		return appendString(nil, m.GetMessage())
	}
	fields := m.GetFields().AsMap()
	if _, taken := fields["message"]; !taken {
		fields["message"] = m.GetMessage()
	}
	data, err := marshal(fields)
	if err != nil { // a number that JSON does not have
		return appendString(nil, m.GetMessage())
	}
	return data
}

// appendLog appends a log notification.
func appendLog(dst, data []byte, level mcp.LoggingLevel, logger string) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":`...), data...)
	dst = appendString(append(dst, `,"level":`...), string(level))
	if logger != "" {
		dst = appendString(append(dst, `,"logger":`...), logger)
	}
	return append(dst, "}}"...)
}

// sessionLog returns the sink of a call that the SDK serves, or nil if its client wants no log.
func sessionLog(ctx context.Context, r *mcp.CallToolRequest) *logSink {
	from := toolwayv1.LogLevel_LOG_LEVEL_DEBUG // the session knows what its client has set
	if isModern(r.Params.Meta) {
		name, _ := r.Params.Meta[mcp.MetaKeyLogLevel].(string)
		if from = logLevel(name); from == 0 {
			return nil
		}
	} else if _, stateless := ctx.Value(requestKey{}).(context.Context); stateless {
		return nil // nobody remembers what this client has set, and the SDK would take it for "info"
	}
	return &logSink{from: from, send: func(data []byte, level mcp.LoggingLevel, logger string) {
		// A client that has gone is noticed by the context; there is nobody else to tell.
		_ = r.Session.Log(ctx, &mcp.LoggingMessageParams{Data: json.RawMessage(data), Level: level, Logger: logger})
	}}
}

// setLogLevel answers logging/setLevel, of versions before 2026-07-28. It needs somebody to remember the level: a session, or stdio.
func (a *Adapter) setLogLevel(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	params, _ := req.GetParams().(*mcp.SetLoggingLevelParams)
	if _, stateless := ctx.Value(requestKey{}).(context.Context); stateless || params == nil || isModern(params.Meta) {
		return nil, rpcError(jsonrpc.CodeMethodNotFound, "method %q is not offered here", method)
	}
	level := logLevel(string(params.Level))
	if level == 0 {
		return nil, invalidParams(fmt.Sprintf("params.level is %q: want one of debug, info, notice, warning, error, critical, alert, emergency", cut(string(params.Level), 100)))
	}
	res, err := next(ctx, method, req)
	if conn, ok := ctx.Value(lineKey{}).(*lineConn); ok && err == nil {
		conn.logLevel.Store(int32(level))
	}
	return res, err
}
