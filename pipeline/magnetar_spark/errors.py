"""What goes wrong on Spark's side. Spark shows the text of an error, so each says what to do."""


class OptionError(ValueError):
    """An option, a column or a mode that this source or sink does not take. Nothing was done."""


class SinkError(RuntimeError):
    """A batch cannot be committed. Nothing of it counts; restart the query to do it again."""


class OffsetsLost(RuntimeError):
    """Offsets that are to be read are not there any more. Nothing was skipped."""
