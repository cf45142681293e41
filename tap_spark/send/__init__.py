"""One run of the tap: slices as RECORD lines or batch files, STATE after what it covers.

From the run to its output: `sync`, `stream_outputs`, the writers of records and batch files, the
spool, standard output.
"""
