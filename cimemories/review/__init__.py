"""The review of labels by people: index, queue, bulk, samples, adjudication, effect."""
