"""Plugins as vLLM's users write them, in the words that they import from vLLM."""

TOOLS = '''
from vllm.entrypoints.chat_utils import make_tool_call_id
from vllm.entrypoints.openai.protocol import (
    DeltaFunctionCall, DeltaMessage, DeltaToolCall, ExtractedToolCallInformation, FunctionCall,
    ToolCall,
)
from vllm.entrypoints.openai.tool_parsers import ToolParser, ToolParserManager


@ToolParserManager.register_module(["angles", "also_angles"])
class Angles(ToolParser):
    """Calls are written <<NAME JSON>>."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        assert self.vocab
        self.at = self.count = 0

    def adjust_request(self, request):
        request.skip_special_tokens = not request.tools
        return request

    def extract_tool_calls(self, model_output, request):
        said = self.extract_tool_calls_streaming(
            "", model_output, model_output, [], [], [], request
        )
        calls = [
            ToolCall(id=one.id, function=FunctionCall(**one.function.model_dump()))
            for one in (said.tool_calls if said else [])
        ]
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=said and said.content
        )

    def extract_tool_calls_streaming(
        self, previous_text, current_text, delta_text, previous_token_ids, current_token_ids,
        delta_token_ids, request,
    ):
        assert previous_text + delta_text == current_text
        assert [*previous_token_ids, *delta_token_ids] == list(current_token_ids)
        names = [tool.function.name for tool in request.tools]
        content, calls = "", []
        while True:
            begin = current_text.find("<<", self.at)
            if begin < 0:
                end = len(current_text) - current_text.endswith("<")
                content, self.at = content + current_text[self.at : end], end
                break
            content, self.at = content + current_text[self.at : begin], begin
            end = current_text.find(">>", begin)
            if end < 0:
                break
            name, _, arguments = current_text[begin + 2 : end].partition(" ")
            if name not in names:
                raise LookupError("nobody knows " + name)
            function = DeltaFunctionCall(name=name, arguments=arguments).model_dump()
            calls.append(DeltaToolCall(
                index=self.count, id=make_tool_call_id(), type="function", function=function
            ))
            self.count, self.at = self.count + 1, end + 2
        if content or calls:
            return DeltaMessage(content=content or None, tool_calls=calls)
'''

REASONING = '''
from vllm.entrypoints.openai.engine.protocol import DeltaMessage
from vllm.reasoning import ReasoningParser, ReasoningParserManager
from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser


@ReasoningParserManager.register_module("slashes")
class Slashes(ReasoningParser):
    """Reasoning up to the first slash."""

    reasoning_start_str, reasoning_end_str = "//", "/"

    def is_reasoning_end(self, input_ids):
        return "no thoughts" in self.model_tokenizer.decode(input_ids)

    def extract_reasoning(self, model_output, request):
        reasoning, slash, content = model_output.partition("/")
        return reasoning, content if slash else None

    def extract_reasoning_streaming(
        self, previous_text, current_text, delta_text, previous_token_ids, current_token_ids,
        delta_token_ids,
    ):
        if "/" in previous_text:
            return DeltaMessage(content=delta_text)
        reasoning, slash, content = delta_text.partition("/")
        return DeltaMessage(reasoning=reasoning, content=content or None)


@ReasoningParserManager.register_module("tokens")
class Tokens(BaseThinkingReasoningParser):
    """The same, by the base class for two tokens."""

    @property
    def start_token(self):
        return "["

    @property
    def end_token(self):
        return "/"


@ReasoningParserManager.register_module("older")
class Older:
    """The names that vLLM's methods had, and no base class."""

    def __init__(self, tokenizer):
        pass

    def extract_reasoning_content(self, model_output, request):
        return Slashes.extract_reasoning(self, model_output, request)

    def extract_reasoning_content_streaming(self, previous_text, *more):
        said = Slashes.extract_reasoning_streaming(self, previous_text, *more)
        return DeltaMessage(reasoning_content=said.reasoning, content=said.content)
'''
