"""Mistakes in the transform of any topic, and in what decodes values."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JOB = "pipeline/magnetar_spark/jobs/transform.py"
_QUERY = "pipeline/magnetar_spark/jobs/transform_query.py"
_PAYLOAD = "pipeline/magnetar_spark/payloads/payload.py"
_JSON_TEXT = "pipeline/magnetar_spark/payloads/json_text.py"
_JSON_COLUMNS = "pipeline/magnetar_spark/payloads/json_columns.py"
_JSON_OUTPUT = "pipeline/magnetar_spark/jobs/json_output.py"
_AVRO = "pipeline/magnetar_spark/payloads/avro_payload.py"
_AVRO_SCHEMAS = "pipeline/magnetar_spark/payloads/avro_schemas.py"
_AVRO_RESOLUTION = "pipeline/magnetar_spark/payloads/avro_resolution.py"
_DECIMALS = "pipeline/magnetar_spark/payloads/exact_decimals.py"
_PROTOBUF = "pipeline/magnetar_spark/payloads/protobuf_payload.py"

MUTANTS = (
    Mutant(
        name="second-object-of-a-value",
        file=_JSON_TEXT,
        old="    if end < len(text) and _after_blanks(text, end) < len(text):",
        new="    if end < len(text) and _next(text, end) == end:",
        mistake="What follows a JSON object is dropped if a comma or a blank is before it.",
    ),
    Mutant(
        name="required-columns-are-not",
        file=_JSON_COLUMNS,
        old="            if name in self._required and None in members:",
        new="            if not self._path and name in self._required and None in members:",
        mistake="NOT NULL counts at the top of an object, and not within it.",
    ),
    Mutant(
        name="bytes-behind-a-datum",
        file=_AVRO,
        old="        if end != len(value):",
        new="        if end > len(value):",
        mistake="Bytes that are left after a datum are of no interest.",
    ),
    Mutant(
        name="items-of-no-bytes",
        file=_AVRO_SCHEMAS,
        old='return any(self._takes_bytes(one["type"], within) for one in node["fields"])',
        new='return bool(node["fields"])',
        mistake="A record with a field takes bytes, whatever the field is.",
    ),
    Mutant(
        name="defaults-as-json-has-them",
        file=_AVRO_RESOLUTION,
        old="    return found if convert is None else convert(found)",
        new="    return found",
        mistake="What an older writer lacks is the default without its logical type.",
    ),
    Mutant(
        name="decimals-are-rounded",
        file=_DECIMALS,
        old="traps=[Inexact, InvalidOperation]\n",
        new="traps=[InvalidOperation]\n",
        mistake="A decimal with more digits than its column is rounded.",
    ),
    Mutant(
        name="microseconds-are-cut",
        file=_JSON_OUTPUT,
        old='F.date_format(time, pattern.format(digits="SSSSSS"))',
        new='F.date_format(time, pattern.format(digits="SSS"))',
        mistake="Times are written with milliseconds.",
    ),
    Mutant(
        name="numbers-of-32-bits",
        file=_PROTOBUF,
        old="    _Field.TYPE_INT32: _Field.TYPE_INT64,\n",
        new="",
        mistake="Of a number whose writer has a wider type, the lower bits are kept.",
    ),
    Mutant(
        name="numbers-that-do-not-fit-vanish",
        file=_PAYLOAD,
        old='            errors[number] = f"a value does not fit in its type: {raised}"',
        new='            _ = f"a value does not fit in its type: {raised}"',
        mistake="A record that no column can hold is left out, and nobody is told.",
    ),
    Mutant(
        name="all-bad-is-a-matter-of-the-error-topic",
        file=_JOB,
        old="is not None and (bad < read or batch > 0 or request.accepts_all_bad):",
        new="is not None and (bad <= read or batch > 0 or request.accepts_all_bad):",
        mistake="With an error topic there is nothing to fail for.",
    ),
    Mutant(
        name="only-what-is-good-is-written",
        file=_JOB,
        old="                output = output.unionByName(_bad(frame, request.error_topic))",
        new=(
            "                output = output.unionByName(_bad(frame, request.error_topic).limit(0))"
        ),
        mistake="Bad values are counted, and go nowhere.",
    ),
    Mutant(
        name="batches-of-a-topic",
        file=_JOB,
        old='txnAppId=f"transform/{query_id}"',
        new='txnAppId=f"transform/{request.output}"',
        mistake="Two jobs that write to one topic take each other's batches for their own.",
    ),
    Mutant(
        name="subqueries-look-at-all-rows",
        file=_QUERY,
        old="not in _ROW_BY_ROW or not node.subqueries().isEmpty():",
        new="not in _ROW_BY_ROW:",
        mistake="A subquery in a condition is part of the condition.",
    ),
)
