"""What a detokenizer may be able to do, by the words that its adapter uses."""

CAPABILITIES: dict[str, str] = {
    "byte_level": "Vocabularies of the kind byte-level.",
    "byte_fallback": "Vocabularies of the kind byte-fallback.",
    "several": "A call of add may have several tokens.",
    "stop_tokens": "A stop token ends an output.",
    "first_stop": "Of several stop strings the one that is complete first counts.",
    "unicode": "Bad bytes become U+FFFD as Unicode says.",
    "flush": "An unfinished character at the end becomes U+FFFD.",
    "eager": "Text is shown as soon as it is certain.",
}
