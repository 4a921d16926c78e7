"""Consumer lag: how far each consumer group is behind, by topic and partition.

`collector` reads offsets from a broker, computes the lag and writes it to the store. The other modules are pure, except
`reader`, which reads the store.
"""
