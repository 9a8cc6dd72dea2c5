"""The XML object API of Google Cloud Storage and of S3-alikes, as a function from request to answer.

It covers what obstore sends: put, ranged get, head, delete, copy within a bucket, ListObjectsV2, multipart
uploads and bulk delete. The stand-in that calls it authorizes
requests and derives bucket and key from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from html import escape
from urllib.parse import unquote
from xml.etree import ElementTree

from .object_memory import PAGE_SIZE, Bucket, ObjectError, StoredObject

WriteCondition = Callable[[StoredObject | None], None]


@dataclass(frozen=True)
class Request:
    """One HTTP request; header names are lower case, `path` is still percent-encoded."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def answer(request: Request, bucket: Bucket, key: str, allowed: WriteCondition) -> Answer:
    """Handle a request for this bucket and key; `allowed` raises if a conditional write must fail."""
    if not key:
        return _answer_bucket(request, bucket)
    query, body = request.query, request.body
    match request.method:
        case "PUT" if "uploadId" in query:
            etag = bucket.put_part(query["uploadId"], int(query["partNumber"]), body)
            return Answer(200, headers={"ETag": etag})
        case "PUT":
            copied = _copy_source(request, bucket)
            stored = bucket.put(key, body if copied is None else copied.body, allowed=allowed)
            if copied is not None:
                return _xml(200, f"<CopyObjectResult><ETag>{escape(stored.etag)}</ETag></CopyObjectResult>")
            return Answer(200, headers=_object_headers(stored))
        case "GET" | "HEAD":
            return _read(request, bucket.get(key))
        case "DELETE" if "uploadId" in query:
            bucket.abort_upload(query["uploadId"])
            return Answer(204)
        case "DELETE":
            # Google answers 404 for a key that is not there and S3 answers 204; obstore takes both as done.
            bucket.delete(key)
            return Answer(204)
        case "POST" if "uploads" in query:
            upload_id = escape(bucket.begin_upload(key))
            return _xml(
                200,
                f"<InitiateMultipartUploadResult><Key>{escape(key)}</Key><UploadId>{upload_id}</UploadId>"
                "</InitiateMultipartUploadResult>",
            )
        case "POST" if "uploadId" in query:
            stored = bucket.complete_upload(query["uploadId"], _named_parts(body), allowed=allowed)
            xml = f"<Key>{escape(key)}</Key><ETag>{escape(stored.etag)}</ETag>"
            done = _xml(200, f"<CompleteMultipartUploadResult>{xml}</CompleteMultipartUploadResult>")
            return Answer(200, done.body, {**done.headers, **_object_headers(stored)})
    raise ObjectError(405, "MethodNotAllowed", f"The stand-in does not do {request.method} of an object.")


def error_answer(error: ObjectError) -> Answer:
    """Return the error as the XML document the real services send."""
    code, message = escape(error.code), escape(error.message)
    return _xml(error.status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>")


def _answer_bucket(request: Request, bucket: Bucket) -> Answer:
    match request.method:
        case "GET" if request.query.get("list-type") == "2":
            return _list(request, bucket)
        case "HEAD":
            return Answer(200)
        case "POST" if "delete" in request.query:
            return _bulk_delete(request.body, bucket)
    raise ObjectError(405, "MethodNotAllowed", f"The stand-in does not do {request.method} of a bucket.")


def _read(request: Request, stored: StoredObject) -> Answer:
    headers = _object_headers(stored)
    if request.headers.get("if-match", stored.etag) not in (stored.etag, "*"):
        raise ObjectError(412, "PreconditionFailed", "The entity tag differs.")
    if request.headers.get("if-none-match") in (stored.etag, "*"):
        return Answer(304, headers=headers)
    if "range" not in request.headers:
        return Answer(200, stored.body, headers)
    start, end = _byte_range(request.headers["range"], len(stored.body))
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(stored.body)}"
    return Answer(206, stored.body[start:end], headers)


def _byte_range(text: str, size: int) -> tuple[int, int]:
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
    if not found or found.group(0) == "bytes=-":
        raise ObjectError(400, "InvalidArgument", f"Not a byte range: {text}")
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= end:
        raise ObjectError(416, "InvalidRange", f"{text} is outside an object of {size} bytes.")
    return start, end


def _list(request: Request, bucket: Bucket) -> Answer:
    query = request.query
    page = bucket.page(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        start_after=query.get("start-after", ""),
        token=query.get("continuation-token"),
        max_keys=int(query.get("max-keys", PAGE_SIZE)),
    )
    xml = [
        f"<Prefix>{escape(query.get('prefix', ''))}</Prefix>",
        f"<KeyCount>{len(page.objects) + len(page.prefixes)}</KeyCount>",
        f"<IsTruncated>{'false' if page.next_token is None else 'true'}</IsTruncated>",
    ]
    if page.next_token is not None:
        xml.append(f"<NextContinuationToken>{page.next_token}</NextContinuationToken>")
    for key, stored in page.objects:
        modified = datetime.fromtimestamp(stored.modified, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        xml.append(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
            f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.body)}</Size></Contents>"
        )
    xml.extend(f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in page.prefixes)
    return _xml(200, f"<ListBucketResult>{''.join(xml)}</ListBucketResult>")


def _bulk_delete(body: bytes, bucket: Bucket) -> Answer:
    keys = [element.text or "" for element in _elements(body, "Key")]
    for key in keys:
        bucket.delete(key)
    # S3 names keys that were not there too; obstore refuses an answer without any element.
    xml = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
    return _xml(200, f"<DeleteResult>{xml}</DeleteResult>")


def _copy_source(request: Request, bucket: Bucket) -> StoredObject | None:
    source = request.headers.get("x-goog-copy-source") or request.headers.get("x-amz-copy-source")
    if source is None:
        return None
    _, _, key = unquote(source).lstrip("/").partition("/")
    return bucket.get(key)


def _named_parts(body: bytes) -> list[tuple[int, str]]:
    numbers = [int(element.text or 0) for element in _elements(body, "PartNumber")]
    etags = [element.text or "" for element in _elements(body, "ETag")]
    return list(zip(numbers, etags, strict=True))


def _elements(body: bytes, name: str) -> list[ElementTree.Element]:
    # The XML comes from our own client over loopback, so the hardened parser is not needed.
    root = ElementTree.fromstring(body)  # noqa: S314
    return root.findall(f".//{{*}}{name}")


def _object_headers(stored: StoredObject) -> dict[str, str]:
    return {
        "ETag": stored.etag,
        "Last-Modified": formatdate(stored.modified, usegmt=True),
        "x-goog-generation": str(stored.generation),
        "Accept-Ranges": "bytes",
    }


def _xml(status: int, xml: str) -> Answer:
    document = f'<?xml version="1.0" encoding="UTF-8"?>{xml}'
    return Answer(status, document.encode(), {"Content-Type": "application/xml"})
