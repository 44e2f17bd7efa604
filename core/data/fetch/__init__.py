"""Published recordings from where they are published.

A fetch is checked, resumable and bounded; it knows no reader.

The hashes are those that several public projects, independent of each other, state for these URLs;
no machine of this project could ask the UCI repository itself. A file of another hash is refused,
with both hashes in the message.
"""

from core.data.fetch.download import PublishedSet

UCI = "https://archive.ics.uci.edu"
MIB = 2**20

SETS = {
    published_set.name: published_set
    for published_set in (
        PublishedSet(
            "hapt",
            f"{UCI}/static/public/341/"
            "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
            "HAPT Data Set.zip",
            most_bytes=160 * MIB,
            sha256="4ac4ae064227c07045a99551876b54d204837e995e298b6488559e209b3deb09",
            size=79_596_192,
        ),
        PublishedSet(
            "uci-har",
            f"{UCI}/static/public/240/human+activity+recognition+using+smartphones.zip",
            "UCI HAR Dataset.zip",
            most_bytes=160 * MIB,
            sha256="c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
            size=61_005_872,
        ),
        PublishedSet(
            "hhar",
            f"{UCI}/ml/machine-learning-databases/00344/Activity%20recognition%20exp.zip",
            "Activity recognition exp.zip",
            most_bytes=1536 * MIB,
            sha256="d4c0c53b195b523859bf71f5a349d164c7a604a321ff6b0972fbed6e03b46582",
        ),
    )
}
"""The sets by the name of the reader's kind."""
