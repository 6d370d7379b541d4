"""The registry itself: every operation there is."""

from __future__ import annotations

from expunge.operations import (
    audit,
    chat,
    doctor,
    documents,
    erasure,
    facts,
    jobs,
    memory,
    processing,
    profile,
    proofs,
    recall,
    reclaim,
    records,
    residue,
    scopes,
    transfer,
)
from expunge.operations.registry import NoInput, Operation, Role, Who

_OPERATORS = (
    Operation(
        "records.put", Role.WRITER, "Write records, all or nothing.",
        records.PutInput, records.PutOutput, records.put,
        writes_records=True, writes_any_org=True,
    ),
    Operation(
        "subject.profile", Role.ADMIN, "Say what is held on a user.",
        profile.ProfileInput, profile.ProfileOutput, profile.profile, read_only=True,
    ),
    Operation(
        "subject.export", Role.ADMIN, "Give a person's data as one file.",
        transfer.ExportInput, transfer.ExportOutput, transfer.export, read_only=True,
    ),
    Operation(
        "records.import", Role.ADMIN, "Bring back the records of an export, but for what was erased since.",
        transfer.ImportInput, transfer.ImportOutput, transfer.import_export, writes_records=True,
    ),
    Operation(
        "erasure.request", Role.ORG_ADMIN, "Erase one scope everywhere, and prove it; or only say what would go.",
        scopes.RequestInput, erasure.Answer | erasure.PreviewOutput, erasure.request,
        destructive=True, refusals_audited=True,
    ),
    Operation(
        "erasure.status", Role.ORG_ADMIN, "Say how an erasure stands.",
        erasure.OneInput, erasure.Answer, erasure.status, read_only=True,
    ),
    Operation(
        "erasure.list", Role.VIEWER, "List the erasures of an org, newest first.",
        erasure.ListInput, erasure.ListOutput, erasure.listing, read_only=True,
    ),
    Operation(
        "erasure.resume", Role.ORG_ADMIN, "Go on with an erasure from its last checkpoint.",
        erasure.OneInput, erasure.Answer, erasure.resume, destructive=True, refusals_audited=True,
    ),
    Operation(
        "erasure.resume_due", Role.OPERATOR, "Purge what was hidden and not restored in time, in every org.",
        erasure.DueInput, erasure.DueOutput, erasure.resume_due, destructive=True,
    ),
    Operation(
        "erasure.restore", Role.ORG_ADMIN, "Serve what an erasure hid again, within 14 days.",
        erasure.RestoreInput, erasure.RestoreOutput, erasure.restore, refusals_audited=True,
    ),
    Operation(
        "erasure.release", Role.ORG_ADMIN, "Lower the fence of an erasure that stopped short.",
        erasure.OneInput, erasure.Answer, erasure.release, refusals_audited=True,
    ),
    Operation(
        "erasure.census", Role.ORG_ADMIN, "Count again what an erasure left.",
        erasure.OneInput, erasure.CensusOutput, erasure.census, read_only=True,
    ),
    Operation(
        "erasure.receipts", Role.ORG_ADMIN, "Give the signed receipts of an erasure.",
        erasure.OneInput, erasure.ReceiptsOutput, erasure.receipts, read_only=True,
    ),
    Operation(
        "erasure.export", Role.ORG_ADMIN, "Give all that is held on a user, hidden and deleted records too.",
        transfer.AdminExportInput, transfer.ExportOutput, transfer.admin_export, read_only=True,
    ),
    Operation(
        "ledger.export", Role.ORG_ADMIN, "Give the whole ledger of an org.",
        proofs.LedgerInput, proofs.LedgerOutput, proofs.export_ledger, read_only=True,
    ),
    Operation(
        "audit.list", Role.ORG_ADMIN, "List what was done in an org, newest first.",
        audit.ListInput, audit.ListOutput, audit.listing, read_only=True,
    ),
    Operation(
        "audit.verify", Role.ORG_ADMIN, "Verify the audit of an org, from its first entry to its head.",
        audit.VerifyInput, audit.VerifyOutput, audit.verify, read_only=True,
    ),
    Operation(
        "audit.head", Role.ORG_ADMIN, "Give the head of an org's audit, to be kept elsewhere.",
        audit.HeadInput, audit.HeadOutput, audit.head, read_only=True,
    ),
    Operation(
        "data_map.show", Role.VIEWER, "Show every collection and what an erasure does to it.",
        NoInput, processing.DataMapOutput, processing.show_data_map, read_only=True,
    ),
    Operation(
        "data_map.article_30", Role.ADMIN, "Give the record of processing activities.",
        NoInput, processing.ArticleThirtyOutput, processing.article_30, read_only=True,
    ),
    Operation(
        "system.doctor", Role.OPERATOR, "Look the installation over, and say what is not covered.",
        NoInput, doctor.DoctorOutput, doctor.examine, read_only=True,
    ),
    Operation(
        "system.residue", Role.OPERATOR, "Say whether texts still stand in the files of the stores, and by what right.",
        residue.ResidueInput, residue.ResidueOutput, residue.search, read_only=True,
    ),
    Operation(
        "system.reclaim", Role.OPERATOR, "Make the bytes of what was removed go, from the search index too.",
        NoInput, reclaim.ReclaimOutput, reclaim.reclaim,
    ),
    Operation(
        "keys.show", Role.OPERATOR, "Show the ids of the keys and the public half in use.",
        NoInput, proofs.KeysOutput, proofs.show_keys, read_only=True,
    ),
    Operation(
        "keys.rotate", Role.OPERATOR, "Make fresh keys; the old ones stay for matching.",
        NoInput, proofs.KeysOutput, proofs.rotate_keys, refusals_audited=True,
    ),
)  # fmt: skip

_AGENTS = (
    Operation(
        "memory.set", Role.WRITER, "Write a value under a key, as its next version.",
        memory.SetInput, memory.SetOutput, memory.set_one, writes_records=True,
    ),
    Operation(
        "memory.set_many", Role.WRITER, "Write values, all or nothing.",
        memory.SetManyInput, memory.SetManyOutput, memory.set_many, writes_records=True,
    ),
    Operation(
        "memory.get", Role.VIEWER, "Read what stands under a key.",
        memory.KeyInput, memory.GetOutput, memory.get, read_only=True,
    ),
    Operation(
        "memory.delete", Role.WRITER, "Write a tombstone over a key; it can be restored for 14 days.",
        memory.KeyWriteInput, memory.DeleteOutput, memory.delete, writes_records=True, destructive=True,
    ),
    Operation(
        "memory.restore", Role.WRITER, "Bring back what was deleted under a key, within 14 days.",
        memory.KeyWriteInput, memory.RestoreRowOutput, memory.restore, writes_records=True,
    ),
    Operation(
        "memory.history", Role.VIEWER, "Read the versions of a key, newest first.",
        memory.HistoryInput, memory.HistoryOutput, memory.history, read_only=True,
    ),
    Operation(
        "memory.touch", Role.WRITER, "Change when values expire, and nothing else of them.",
        memory.TouchInput, memory.TouchOutput, memory.touch, writes_records=True,
    ),
    Operation(
        "memory.sweep_expired", Role.ADMIN, "Do to expired values what their writers said.",
        memory.SweepInput, memory.SweepOutput, memory.sweep_expired, writes_records=True, destructive=True,
    ),
    Operation(
        "chat.remember", Role.WRITER, "Write episodes with their transcripts, all or nothing.",
        chat.RememberInput, chat.RememberOutput, chat.remember, writes_records=True,
    ),
    Operation(
        "chat.begin_run", Role.WRITER, "Note that a run has begun.",
        chat.RunInput, chat.RunOutput, chat.begin_run, writes_records=True,
    ),
    Operation(
        "chat.end_run", Role.WRITER, "Give a run its output, unless it was erased since it began.",
        chat.EndRunInput, chat.EndRunOutput, chat.finish_run, writes_records=True,
    ),
    Operation(
        "chat.messages", Role.VIEWER, "Read the newest messages of a session, with its tool transcripts.",
        chat.SessionInput, chat.MessagesOutput, chat.session_messages, read_only=True,
    ),
    Operation(
        "chat.sessions", Role.VIEWER, "List the sessions of a user, newest first.",
        chat.SessionsInput, chat.SessionsOutput, chat.list_sessions, read_only=True,
    ),
    Operation(
        "chat.end_session", Role.WRITER, "End a session.",
        Who, chat.EndSessionOutput, chat.finish_session, writes_records=True,
    ),
    Operation(
        "facts.add", Role.WRITER, "Write facts, in any order of their times.",
        facts.AddFactsInput, facts.AddFactsOutput, facts.add_facts, writes_records=True,
    ),
    Operation(
        "facts.list", Role.VIEWER, "List facts by what they are about, when they hold, and when that was known.",
        facts.FactsInput, facts.FactsOutput, facts.list_facts, read_only=True,
    ),
    Operation(
        "blocks.update", Role.WRITER, "Write a block of working memory, or add to its end.",
        facts.BlockInput, facts.Block, facts.update_block, writes_records=True,
    ),
    Operation(
        "blocks.list", Role.VIEWER, "Read the blocks of an identity, in their order.",
        Who, facts.BlocksOutput, facts.list_blocks, read_only=True,
    ),
    Operation(
        "blocks.delete", Role.WRITER, "Write a tombstone over a block.",
        facts.BlockNameInput, facts.DeleteBlockOutput, facts.delete_block, writes_records=True, destructive=True,
    ),
    Operation(
        "documents.add", Role.WRITER, "Write a document, with its original and its chunks.",
        documents.DocumentInput, documents.Document, documents.add, writes_records=True,
    ),
    Operation(
        "documents.get", Role.VIEWER, "Read a document, as it stands or in a version.",
        documents.TitleInput, documents.DocumentOutput, documents.get, read_only=True,
    ),
    Operation(
        "documents.original", Role.VIEWER, "Read the original of a document.",
        documents.TitleInput, documents.OriginalOutput, documents.original, read_only=True,
    ),
    Operation(
        "documents.list", Role.VIEWER, "List the documents of an identity.",
        documents.DocumentsInput, documents.DocumentsOutput, documents.listing, read_only=True,
    ),
    Operation(
        "documents.pin", Role.WRITER, "Pin the version of a document that stands, or take the pin off.",
        documents.PinInput, documents.FoundOutput, documents.pin, writes_records=True,
    ),
    Operation(
        "documents.delete", Role.WRITER, "Write a tombstone over a document.",
        documents.TitleInput, documents.FoundOutput, documents.delete, writes_records=True, destructive=True,
    ),
    Operation(
        "search.find", Role.VIEWER, "Find records by words and by meaning.",
        recall.SearchInput, recall.SearchOutput, recall.search, read_only=True,
    ),
    Operation(
        "search.reindex", Role.ADMIN, "Give records their entries in the search index that have none.",
        recall.ReindexInput, recall.ReindexOutput, recall.reindex, writes_records=True,
    ),
    Operation(
        "answers.kept", Role.VIEWER, "Give an answer again that was kept.",
        recall.KeptInput, recall.KeptOutput, recall.kept, read_only=True,
    ),
    Operation(
        "answers.keep", Role.WRITER, "Keep an answer, with its lineage to what it quotes.",
        recall.KeepInput, recall.KeepOutput, recall.keep, writes_records=True,
    ),
    Operation(
        "jobs.add", Role.WRITER, "Queue something to be derived.",
        jobs.AddJobInput, jobs.AddJobOutput, jobs.add, writes_records=True,
    ),
    Operation(
        "jobs.run", Role.WRITER, "Run jobs that wait, by the derivers that are registered here.",
        jobs.RunJobsInput, jobs.RunJobsOutput, jobs.run, writes_records=True,
    ),
    Operation(
        "jobs.count", Role.VIEWER, "Count the jobs of an org, by status.",
        jobs.JobsInput, jobs.JobsOutput, jobs.count, read_only=True,
    ),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in (*_OPERATORS, *_AGENTS)}
"""Every operation, by name."""
