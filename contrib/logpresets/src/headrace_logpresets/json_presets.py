"""The presets of events that are JSON objects."""

from __future__ import annotations

from headrace_logpresets.json_preset import JsonPreset, Key

_CLOUDTRAIL = JsonPreset(
    name="aws-cloudtrail",
    reads="events and insights of AWS CloudTrail, one in each record; not the files of a trail, which have many events in `Records`",
    required=("timestamp",),
    # An insight has no event name; the name of its calls is in its details.
    one_of=("event_name", "insight_type"),
    keys={
        "timestamp": Key("eventTime", "@timestamp", "timestamp"),
        "event_name": Key("eventName", "event.action"),
        "event_source": Key("eventSource", "event.provider"),
        "event_id": Key("eventID", "event.id"),
        "event_type": Key("eventType", "aws.cloudtrail.event_type"),
        "event_category": Key("eventCategory", "aws.cloudtrail.event_category"),
        "read_only": Key("readOnly", "aws.cloudtrail.read_only", "boolean"),
        "region": Key("awsRegion", "cloud.region"),
        "account_id": Key("recipientAccountId", "cloud.account.id"),
        "source_address": Key("sourceIPAddress", "source.address"),
        "user_agent": Key("userAgent", "user_agent.original"),
        "user_type": Key("userIdentity.type", "aws.cloudtrail.user_identity.type"),
        "user_name": Key("userIdentity.userName", "user.name"),
        "user_arn": Key("userIdentity.arn", "aws.cloudtrail.user_identity.arn"),
        "principal_id": Key("userIdentity.principalId", "user.id"),
        "user_account_id": Key("userIdentity.accountId", "aws.cloudtrail.user_identity.account_id"),
        "access_key_id": Key("userIdentity.accessKeyId", "aws.cloudtrail.user_identity.access_key_id"),
        "invoked_by": Key("userIdentity.invokedBy", "aws.cloudtrail.user_identity.invoked_by"),
        "session_issuer": Key(
            "userIdentity.sessionContext.sessionIssuer.arn", "aws.cloudtrail.user_identity.session_issuer.arn"
        ),
        "mfa_authenticated": Key(
            "userIdentity.sessionContext.attributes.mfaAuthenticated", "aws.cloudtrail.user_identity.mfa_authenticated"
        ),
        "error_code": Key("errorCode", "error.code"),
        "error_message": Key("errorMessage", "error.message"),
        "request_parameters": Key("requestParameters", "aws.cloudtrail.request_parameters", "json"),
        "response_elements": Key("responseElements", "aws.cloudtrail.response_elements", "json"),
        "additional_data": Key("additionalEventData", "aws.cloudtrail.additional_event_data", "json"),
        "resources": Key("resources", "aws.cloudtrail.resources", "json"),
        "request_id": Key("requestID", "aws.cloudtrail.request_id"),
        "shared_event_id": Key("sharedEventID", "aws.cloudtrail.shared_event_id"),
        "vpc_endpoint_id": Key("vpcEndpointId", "aws.cloudtrail.vpc_endpoint_id"),
        "management_event": Key("managementEvent", "aws.cloudtrail.management_event", "boolean"),
        "service_event_details": Key("serviceEventDetails", "aws.cloudtrail.service_event_details", "json"),
        "addendum": Key("addendum", "aws.cloudtrail.addendum", "json"),
        "identity_provider": Key("userIdentity.identityProvider", "aws.cloudtrail.user_identity.identity_provider"),
        "session_issuer_type": Key(
            "userIdentity.sessionContext.sessionIssuer.type", "aws.cloudtrail.user_identity.session_issuer.type"
        ),
        "session_issuer_name": Key(
            "userIdentity.sessionContext.sessionIssuer.userName",
            "aws.cloudtrail.user_identity.session_issuer.user_name",
        ),
        "tls_version": Key("tlsDetails.tlsVersion", "aws.cloudtrail.tls_details.tls_version"),
        "tls_cipher": Key("tlsDetails.cipherSuite", "tls.cipher"),
        "tls_host": Key("tlsDetails.clientProvidedHostHeader", "tls.client.server_name"),
        "insight_state": Key("insightDetails.state", "aws.cloudtrail.insight.state"),
        "insight_type": Key("insightDetails.insightType", "aws.cloudtrail.insight.type"),
        "insight_event_name": Key("insightDetails.eventName", "aws.cloudtrail.insight.event_name"),
        "insight_event_source": Key("insightDetails.eventSource", "aws.cloudtrail.insight.event_source"),
        "insight_error_code": Key("insightDetails.errorCode", "aws.cloudtrail.insight.error_code"),
        "insight_baseline_average": Key(
            "insightDetails.insightContext.statistics.baseline.average",
            "aws.cloudtrail.insight.baseline_average",
            "float64",
        ),
        "insight_average": Key(
            "insightDetails.insightContext.statistics.insight.average", "aws.cloudtrail.insight.average", "float64"
        ),
        "insight_duration_minutes": Key(
            "insightDetails.insightContext.statistics.insightDuration",
            "aws.cloudtrail.insight.duration_minutes",
            "int64",
        ),
    },
)

_KUBERNETES = JsonPreset(
    name="kubernetes-audit",
    reads="the audit log of Kubernetes' API server",
    required=("audit_id", "stage"),
    keys={
        "timestamp": Key("stageTimestamp", "@timestamp", "timestamp"),
        "requested": Key("requestReceivedTimestamp", "event.start", "timestamp"),
        "audit_id": Key("auditID", "event.id"),
        "level": Key("level", "kubernetes.audit.level"),
        "stage": Key("stage", "kubernetes.audit.stage"),
        "verb": Key("verb", "event.action"),
        "request": Key("requestURI", "url.original"),
        "user": Key("user.username", "user.name"),
        "user_id": Key("user.uid", "user.id"),
        "groups": Key("user.groups", "user.roles", "array<string>"),
        "impersonated_user": Key("impersonatedUser.username", "user.effective.name"),
        "source_ips": Key("sourceIPs", "source.ip", "array<string>"),
        "user_agent": Key("userAgent", "user_agent.original"),
        "resource": Key("objectRef.resource", "kubernetes.audit.object.resource"),
        "subresource": Key("objectRef.subresource", "kubernetes.audit.object.subresource"),
        "namespace": Key("objectRef.namespace", "orchestrator.namespace"),
        "name": Key("objectRef.name", "orchestrator.resource.name"),
        "api_group": Key("objectRef.apiGroup", "kubernetes.audit.object.api_group"),
        "api_version": Key("objectRef.apiVersion", "orchestrator.api_version"),
        "response": Key("responseStatus.code", "http.response.status_code", "int64"),
        "response_reason": Key("responseStatus.reason", "kubernetes.audit.response.reason"),
        "response_status": Key("responseStatus.status", "kubernetes.audit.response.status"),
        "response_message": Key("responseStatus.message", "error.message"),
        "impersonated_groups": Key("impersonatedUser.groups", "user.effective.roles", "array<string>"),
        "object_uid": Key("objectRef.uid", "orchestrator.resource.id"),
        "annotations": Key("annotations", "kubernetes.audit.annotations", "json"),
        "request_object": Key("requestObject", "kubernetes.audit.request_object", "json"),
        "response_object": Key("responseObject", "kubernetes.audit.response_object", "json"),
    },
)

PRESETS = (_CLOUDTRAIL, _KUBERNETES)
