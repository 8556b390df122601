"""Parsers of tool calls and of reasoning in a model's text, and grammars for tool calls.

parser_base.py            the base of all parsers: what a turn holds, and reading text in pieces
turn_parser.py            a whole turn: special tokens, then reasoning, then calls
reasoning_parser.py       reasoning, between <think> and </think> or other markers
reasoning_styles.py       the table of ways in which models write reasoning
harmony_parsers.py        reasoning and calls of gpt-oss, whose turns are rows of messages
tool_parser.py            the base of all tool parsers
json_tool_parsers.py      calls as JSON: Hermes, Qwen, Granite, Llama 3, xLAM, a plain list
section_tool_parser.py    calls between markers, one or several in a section: base of the next two
marked_tool_parser.py     calls with markers around a name and JSON: DeepSeek, Kimi
tagged_tool_parser.py     calls with tags around each argument: Qwen 3 Coder, GLM, MiniMax
mistral_tool_parser.py    Mistral's calls
pythonic_tool_parser.py   calls as Python: Llama 4, OLMo 3
plugin_classes.py         what the parsers of plugins import: bases, registries, messages
plugin_readers.py         reads a turn by the parsers of plugins
json_scanner.py           whether a text can still become a JSON object, letter by letter
tool_formats.py           the table of forms in which models write calls: parser and grammar of each
"""
