"""The chat templates of Mistral's instruct formats, for checkpoints that bring none.

A format has the version of its tokenizer's file. All are one template, whose first line sets the
version: v1 writes turns as text; v3 has tokens around them, and puts the system's words before the
last turn of the user; v7 has tokens around those, too, and the ids of tools' results in the open;
v11 writes a call as a name and its arguments; v13 lists tools at the user's first turn.
"""

VERSIONS = (1, 3, 7, 11, 13)

_TEMPLATE = r"""
{%- set is_joined = version < 7 %}
{%- set inst = '[INST] ' if version == 1 else '[INST]' %}
{%- set end_inst = ' [/INST]' if version == 1 else '[/INST]' %}
{%- set turns = messages | rejectattr('role', 'equalto', 'system') | list if is_joined else messages %}
{%- set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join('\n\n') %}
{%- if version == 1 and tools %}
    {{- raise_exception('this version of the format has no tools') }}
{%- endif %}
{%- set at = namespace(first=-1, last=-1) %}
{%- for turn in turns %}
    {%- if turn.role == 'user' and (loop.first or turns[loop.index0 - 1].role != 'user') %}
        {%- set at.last = loop.index0 %}
        {%- if at.first < 0 %}{% set at.first = loop.index0 %}{% endif %}
    {%- endif %}
{%- endfor %}
{%- set at_tools = at.first if version >= 13 else at.last %}
{%- set at_system = at.first if version == 1 else at.last %}
{{- bos_token }}
{%- for turn in turns %}
    {%- if turn.role == 'user' %}
        {%- if not loop.first and turns[loop.index0 - 1].role == 'user' %}
            {{- '\n\n' + turn.content }}
        {%- else %}
            {%- if tools and loop.index0 == at_tools %}
                {{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
            {%- endif %}
            {{- inst }}
            {%- if is_joined and system and loop.index0 == at_system %}
                {{- system + '\n\n' }}
            {%- endif %}
            {{- turn.content }}
        {%- endif %}
        {%- if loop.last or turns[loop.index0 + 1].role != 'user' %}
            {{- end_inst }}
        {%- endif %}
    {%- elif turn.role == 'system' %}
        {{- '[SYSTEM_PROMPT]' + turn.content + '[/SYSTEM_PROMPT]' }}
    {%- elif turn.role == 'assistant' %}
        {%- set content = turn.content or '' %}
        {%- if turn.tool_calls and version == 1 %}
            {{- raise_exception('this version of the format has no tools') }}
        {%- elif turn.tool_calls and content and version < 7 %}
            {{- raise_exception('a message of the assistant has content or tool_calls in this version of the format, not both') }}
        {%- endif %}
        {%- if content %}
            {{- ' ' + content if version == 1 else content.rstrip(' ') }}
        {%- endif %}
        {%- if turn.tool_calls and version < 11 %}
            {{- '[TOOL_CALLS][' }}
            {%- for call in turn.tool_calls %}
                {{- '{"name": ' + (call.function.name | tojson) + ', "arguments": ' + (call.function.arguments | tojson) }}
                {{- (', "id": ' + (call.id | tojson) if call.id else '') + ('}' if loop.last else '}, ') }}
            {%- endfor %}
            {{- ']' }}
        {%- elif turn.tool_calls %}
            {%- for call in turn.tool_calls %}
                {{- '[TOOL_CALLS]' + call.function.name }}
                {{- '[CALL_ID]' + call.id if call.id and version < 13 else '' }}
                {{- '[ARGS]' + (call.function.arguments | tojson) }}
            {%- endfor %}
        {%- endif %}
        {{- eos_token }}
    {%- elif turn.role == 'tool' and version > 1 %}
        {%- set content = turn.content %}
        {%- if version >= 13 %}
            {{- '[TOOL_RESULTS]' + content + '[/TOOL_RESULTS]' }}
        {%- elif version >= 7 %}
            {{- '[TOOL_RESULTS]' + (turn.tool_call_id or '') + '[TOOL_CONTENT]' + content + '[/TOOL_RESULTS]' }}
        {%- else %}
            {%- set digits = content.replace('-', '', 1).replace('.', '', 1) %}
            {%- set is_json = content[:1] in ['{', '[', '"'] or content in ['true', 'false', 'null'] or digits.isdigit() %}
            {{- '[TOOL_RESULTS]{"content": ' + (content if is_json else content | tojson) }}
            {{- ', "call_id": ' + ((turn.tool_call_id or '') | tojson) + '}[/TOOL_RESULTS]' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('a message must be of user, system, assistant or tool, got ' + turn.role) }}
    {%- endif %}
{%- endfor %}
"""  # noqa: E501  lines of Jinja


def instruct_template(version: int) -> str | None:
    """The template of a version's format, in Jinja; None if it is not known here."""
    if version not in VERSIONS:
        return None
    return f"{{%- set version = {version} %}}{_TEMPLATE}"
