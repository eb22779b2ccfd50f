"""Information flows (profile, attribute, context) of a run, cut from the record: what every analysis rests on."""
