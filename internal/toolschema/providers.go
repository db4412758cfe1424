package toolschema

// Rule is one demand of a model API or client on a schema, with the public place that it is known from. A profile keeps all rules
// that are listed for it; [Problems] checks them.
type Rule struct {
	// ID is short and stable, such as "root-union".
	ID string
	// Providers are who demands it.
	Providers string
	// Profiles are the profiles that keep it.
	Profiles []Profile
	// InputOnly marks rules of model APIs, which never see the schema of a result.
	InputOnly bool
	// OutputOnly marks rules of clients that validate results.
	OutputOnly bool
	// Text says what must hold.
	Text string
	// Source is where the rule is known from: a specification, a descriptor of the API, or a public report.
	Source string

	check func(*checker, value)
}

var all = []Profile{Portable, Full, Strict}

// Rules is the rule table. It must not be changed.
var Rules = []Rule{
	{
		ID: "root-object", Providers: "MCP, Claude Code", Profiles: all,
		Text:   `the root is a plain object: "type":"object"`,
		Source: "MCP 2026-07-28 server/tools; MCP TypeScript SDK 1.32.2 dist/esm/types.js:1252; anthropics/claude-code#88049",
		check:  checkRootObject,
	},
	{
		ID: "root-union", Providers: "Anthropic, OpenAI, xAI", Profiles: all,
		Text:   "the root has no oneOf, anyOf, allOf, not or enum",
		Source: "makenotion/notion-mcp-server#340 and #341; anthropics/claude-code#95504; imagekit-developer/imagekit-nodejs#150",
		check:  checkRootUnion,
	},
	{
		ID: "root-properties", Providers: "OpenAI", Profiles: all,
		Text:   `the root has "properties", even if there are none`,
		Source: "openai/openai-agents-python#449; langchain-ai/langchain-mcp-adapters#343",
		check:  checkRootProperties,
	},
	{
		ID: "local-ref", Providers: "all", Profiles: all,
		Text:   `every "$ref" points below "#/$defs/" and resolves in the schema itself`,
		Source: "MCP 2026-07-28 basic/index (no network $ref); google-labs-code/stitch-sdk#367; davideast/stitch-mcp#184",
		check:  checkLocalRef,
	},
	{
		ID: "no-ref", Providers: "Gemini, several hosts", Profiles: []Profile{Portable},
		Text:   `no "$ref" and no "$defs"`,
		Source: "google-gemini/gemini-cli#13326; anomalyco/opencode#12295; PrefectHQ/fastmcp#2808",
		check:  checkNoRef,
	},
	{
		ID: "property-key", Providers: "Anthropic", Profiles: []Profile{Portable, Strict}, InputOnly: true,
		Text:   "property keys match ^[a-zA-Z0-9_.-]{1,64}$",
		Source: "decocms/studio#6874; ComposioHQ/composio#2330",
		check:  checkPropertyKey,
	},
	{
		ID: "inherited-key", Providers: "MCP TypeScript SDK (AJV)", Profiles: all, OutputOnly: true,
		Text:   "no property is called as a member of JavaScript's Object.prototype, such as toString or constructor",
		Source: "MCP TypeScript SDK 1.32.2 (AJV without ownProperties): a result without the key is refused, since the inherited function is found",
		check:  checkInheritedKey,
	},
	{
		ID: "keywords", Providers: "Gemini", Profiles: []Profile{Portable},
		Text:   "only the keywords that google.ai.generativelanguage.v1beta.Schema has fields for",
		Source: "message google.ai.generativelanguage.v1beta.Schema in googleapis; promptfoo/promptfoo#6902; zed-industries/zed#45552; anomalyco/opencode#15408",
		check:  checkKeywords,
	},
	{
		ID: "one-type", Providers: "Gemini, MCP inspector", Profiles: []Profile{Portable},
		Text:   `"type" is one string, not a list`,
		Source: "zed-industries/zed#44875; taylorwilsdon/google_workspace_mcp#1099; MCP inspector 2.12.0 --strict (warning)",
		check:  checkOneType,
	},
	{
		ID: "string-enum", Providers: "Gemini", Profiles: []Profile{Portable},
		Text:   `"enum" stands only beside "type":"string" and holds strings, none of them empty`,
		Source: "decolua/9router#359; mongodb-js/mongodb-mcp-server#715; sbroenne/mcp-server-excel#607",
		check:  checkStringEnum,
	},
	{
		ID: "distinct", Providers: "AJV, VS Code", Profiles: all,
		Text:   `"enum" and "required" hold nothing twice`,
		Source: "PostHog/mcp#141; ProfSynapse/nexus#5",
		check:  checkDistinct,
	},
	{
		ID: "safe-number", Providers: "Anthropic", Profiles: all,
		Text:   "no whole number beyond ±9007199254740991",
		Source: "adiom-data/grpcmcp#4; RevenueCat/ai-toolkit#26; ansible/aap-mcp-server#170",
		check:  checkSafeNumber,
	},
	{
		ID: "format", Providers: "Gemini", Profiles: []Profile{Portable}, InputOnly: true,
		Text:   `"format" is date-time for strings, int32 or int64 for integers, float or double for numbers`,
		Source: "google-gemini/gemini-cli#3178; CherryHQ/cherry-studio#4153",
		check:  checkFormat,
	},
	{
		ID: "typed", Providers: "Gemini, MCP inspector", Profiles: []Profile{Portable},
		Text:   `every subschema says its "type", or is an "anyOf" of such; none is empty`,
		Source: "zereight/gitlab-mcp#166; agno-agi/agno#3298; MCP inspector 2.12.0 --strict (warning)",
		check:  checkTyped,
	},
	{
		ID: "lone-anyof", Providers: "Gemini", Profiles: []Profile{Portable}, InputOnly: true,
		Text:   `"anyOf" stands alone`,
		Source: "anomalyco/opencode#14659",
		check:  checkLoneAnyOf,
	},
	{
		ID: "items", Providers: "Gemini, VS Code", Profiles: []Profile{Portable, Strict}, InputOnly: true,
		Text:   `every array says its "items"`,
		Source: "google.ai.generativelanguage.v1beta.Schema.items; public reports of \"items: missing field\"",
		check:  checkItems,
	},
	{
		ID: "required-defined", Providers: "Gemini", Profiles: []Profile{Portable, Strict},
		Text:   `every name in "required" is in "properties"`,
		Source: "iBUHub/AIStudioToAPI#154; znlsl/Antigravity2Api#22",
		check:  checkRequiredDefined,
	},
	{
		ID: "no-boolean-schema", Providers: "MCP inspector", Profiles: all,
		Text:   "no subschema is true or false, additionalProperties aside",
		Source: "MCP inspector 2.12.0 --strict (error)",
		check:  checkNoBoolean,
	},
	{
		ID: "closed", Providers: "OpenAI strict, Anthropic strict", Profiles: []Profile{Strict}, InputOnly: true,
		Text:   `every object has "additionalProperties":false`,
		Source: "jsonschemaprofiles.unitvectorylabs.com (OpenAI strict, February 2026); developersdigest.tech structured-outputs-across-ai-apis-2026",
		check:  checkClosed,
	},
	{
		ID: "all-required", Providers: "OpenAI strict", Profiles: []Profile{Strict}, InputOnly: true,
		Text:   `every property is in "required"`,
		Source: "camel-ai/camel#2629; jsonschemaprofiles.unitvectorylabs.com",
		check:  checkAllRequired,
	},
	{
		ID: "strict-keywords", Providers: "OpenAI strict, Anthropic strict", Profiles: []Profile{Strict}, InputOnly: true,
		Text:   "no number, length or count limits, no maps, no composition but anyOf",
		Source: "jsonschemaprofiles.unitvectorylabs.com; developersdigest.tech structured-outputs-across-ai-apis-2026",
		check:  checkStrictKeywords,
	},
	{
		ID: "lone-ref", Providers: "OpenAI strict, Gemini", Profiles: []Profile{Strict}, InputOnly: true,
		Text:   `"$ref" stands alone`,
		Source: "su-kaka/gcli2api#374",
		check:  checkLoneRef,
	},
	{
		ID: "strict-size", Providers: "OpenAI strict", Profiles: []Profile{Strict}, InputOnly: true,
		Text:   "at most 5,000 properties, 10 levels, 1,000 enum values and 120,000 characters of names and enum values",
		Source: "jsonschemaprofiles.unitvectorylabs.com (OpenAI strict, February 2026)",
		check:  checkStrictSize,
	},
}
