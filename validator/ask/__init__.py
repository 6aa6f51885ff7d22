# SPDX-License-Identifier: Apache-2.0
"""Questions to a lane while the job runs: its state, and what it would say to a record now.

In come a checkpoint, a state file or requests on a topic. Out go documents and answers; no lane changes.
"""
